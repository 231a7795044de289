//! `run --until-empty`: when nothing is waiting, delayed or in flight.

use std::{collections::BTreeSet, time::Duration};

use postroom::{
    Health, Kind, Node,
    ops::{self, OpsError},
};

use crate::output::{Output, progress::Progress};

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// A consumer that is paused so many looks long stays so.
const PAUSED: u32 = 20;
/// Messages move between places while they are counted one after the other, so one look is not enough.
const LOOKS: u32 = 2;

/// Resolves when the transports are empty. What a broker cannot say is left out, and named.
///
/// # Errors
/// When only paused consumers have messages left: the reason.
pub(crate) async fn empty(node: &Node, output: Output, transports: &[String]) -> Result<(), String> {
    let mut progress: Option<(Progress, u64)> = None;
    let (mut looks, mut paused, mut unknown) = (0, 0, BTreeSet::new());
    let ended = loop {
        if looks == LOOKS {
            break Ok(());
        }
        tokio::time::sleep(PAUSE).await;
        let Some((left, stuck)) = left(node, transports, &mut unknown).await else {
            looks = 0;
            continue;
        };
        looks = if left == 0 { looks + 1 } else { 0 };
        paused = if stuck.is_some() { paused + 1 } else { 0 };
        if let Some(why) = stuck.filter(|_| paused >= PAUSED) {
            break Err(why);
        }
        if left == 0 && progress.is_none() {
            continue;
        }
        let (bar, most) = progress.get_or_insert_with(|| (Progress::new(output, "handled", Some(left)), left));
        *most = (*most).max(left);
        bar.set(most.saturating_sub(left));
    };
    if let Some((progress, _)) = progress {
        progress.finish();
    }
    for name in unknown {
        output.note(&format!("note: {name}, so --until-empty did not wait for it"));
    }
    ended
}

/// What is left, as far as it can be known just now; and, where only paused consumers have some left, why they are.
async fn left(node: &Node, transports: &[String], unknown: &mut BTreeSet<String>) -> Option<(u64, Option<String>)> {
    let (mut sum, mut moving, mut stuck) = (0, 0, None);
    for name in transports {
        let transport = node.transport(name)?;
        let lines = match ops::stats(&transport, None).await {
            Ok(lines) => lines,
            Err(OpsError::Transport(error)) if super::run::is_missing(error.kind()) => continue,
            // A broker that is away says nothing about its messages.
            Err(_) => return None,
        };
        let mut here = 0;
        for stats in lines {
            let (left, missing) = stats.backlog();
            here += left;
            unknown.extend(missing.iter().map(|figure| format!("the broker of `{name}` cannot tell {figure}")));
        }
        sum += here;
        let consumer = node.board().line(Kind::Consumer, name).filter(|line| line.health == Health::Degraded);
        match consumer {
            Some(line) if here > 0 => {
                let waiting = crate::text::count(here, "message");
                stuck = Some(format!("the consumer of `{name}` is paused, with {waiting} left: {}", line.why));
            }
            _ => moving += here,
        }
    }
    Some((sum, stuck.filter(|_| moving == 0)))
}
