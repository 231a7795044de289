//! Runs the scenarios side by side, each with fresh names and a time limit of its own.

use std::{rc::Rc, time::Instant};

use futures_util::{StreamExt, stream};
use postroom_core::Broker;

use crate::{
    Entry, Group, Level, Report, Subject, Verdict,
    scenario::{Powers, Scenario},
    support::{Stop, World},
};

/// How many scenarios run at once: they mostly wait.
const SIDE_BY_SIDE: usize = 16;

/// Runs the scenarios whose `group::name` contains `filter`, on an actix system of its own.
pub fn run<S: Subject>(subject: S, level: Level, filter: &str) -> Report {
    actix_rt::System::new().block_on(run_here(subject, level, filter))
}

/// As [`run`], for a test that is inside a local task set already (`#[actix_rt::test]`, `LocalSet::run_until`).
pub async fn run_here<S: Subject>(subject: S, level: Level, filter: &str) -> Report {
    let subject = Rc::new(subject);
    let powers = match discover(&subject).await {
        Ok(powers) => powers,
        Err(why) => return unconnected(level, why),
    };
    let can = &powers.capabilities;
    let broker =
        can.server.as_ref().map_or_else(|| can.broker.to_owned(), |version| format!("{} {version}", can.broker));
    let chosen = scenarios::<S>(level).into_iter().filter(|s| format!("{}::{}", s.group, s.name).contains(filter));
    let mut entries: Vec<Entry> = stream::iter(chosen.map(|scenario| one(scenario, &subject, &powers)))
        .buffer_unordered(SIDE_BY_SIDE)
        .collect()
        .await;
    entries.sort_by_key(|entry| (entry.group, entry.name));
    Report { broker, level, entries }
}

fn scenarios<S: Subject>(level: Level) -> Vec<Scenario<S>> {
    match level {
        Level::Bare => crate::bare::all(),
        Level::Actors => crate::actors::all(),
    }
}

async fn discover<S: Subject>(subject: &Rc<S>) -> Result<Powers, String> {
    let subject = subject.clone();
    let limit = subject.limit();
    let found = tokio::task::spawn_local(async move {
        let broker = S::Broker::connect(&subject.config()).await?;
        let powers = Powers::discover(&*subject, &broker);
        broker.close().await?;
        Ok::<_, postroom_core::TransportError>(powers)
    });
    match tokio::time::timeout(limit, found).await {
        Err(_) => Err(format!("timed out after {limit:?}")),
        Ok(Err(join)) => Err(ended(join)),
        Ok(Ok(Err(error))) => Err(format!("{error:?}")),
        Ok(Ok(Ok(powers))) => Ok(powers),
    }
}

fn unconnected(level: Level, why: String) -> Report {
    let entry = Entry {
        group: Group::Operations,
        name: "connect_and_close",
        proves: "a broker can be connected to, asked for its capabilities, and closed",
        verdict: Verdict::Failed(why),
        took: std::time::Duration::ZERO,
    };
    Report { broker: "an unreached broker".to_owned(), level, entries: vec![entry] }
}

async fn one<S: Subject>(scenario: Scenario<S>, subject: &Rc<S>, powers: &Powers) -> Entry {
    let Scenario { group, name, proves, needs, run } = scenario;
    let started = Instant::now();
    let verdict = match needs.iter().find(|need| !powers.has(**need)) {
        Some(need) => Verdict::NotApplicable(*need),
        None => {
            let world = World::new(subject.clone(), powers.clone(), name);
            let mut task = tokio::task::spawn_local(async move {
                run(world.clone()).await?;
                world.finish().await
            });
            let limit = subject.limit();
            match tokio::time::timeout(limit, &mut task).await {
                Err(_) => {
                    task.abort();
                    Verdict::Failed(format!("timed out after {limit:?}"))
                }
                Ok(Err(join)) => Verdict::Failed(ended(join)),
                Ok(Ok(Err(Stop::Failed(why)))) => Verdict::Failed(why),
                Ok(Ok(Ok(()))) => Verdict::Passed,
            }
        }
    };
    Entry { group, name, proves, verdict, took: started.elapsed() }
}

fn ended(join: tokio::task::JoinError) -> String {
    let Ok(panic) = join.try_into_panic() else { return "cancelled".to_owned() };
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.as_deref().unwrap_or("without a text"))
}
