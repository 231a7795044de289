//! Mode "lines": one long-lived process a slot. It holds at most `window` messages; when it dies or answers nonsense, all
//! of them err, and it is started again with back-off.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use postroom::{HandlerError, Received};
use postroom_core::Raw;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{ChildStderr, ChildStdout},
    runtime::Handle,
    sync::{Semaphore, mpsc, oneshot},
    task::JoinHandle,
};

use super::{
    Spec,
    link::{Link, PATIENCE, Streams, Tail, ending},
    talk::{self, Answer},
};

/// The pause before a start after a bad end; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// No pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A process that lived so long ended well.
const GOOD_LIFE: Duration = Duration::from_secs(30);

/// The processes of one handler.
pub(crate) struct Lines {
    spec: Arc<Spec>,
    /// The threads of a pool end before its processes do, so these live on the main one.
    runtime: Handle,
    window: usize,
    lanes: Vec<Lane>,
    slots: AtomicUsize,
}

/// One process, or the place of one.
struct Lane {
    room: Semaphore,
    keeper: Mutex<Option<Keeper>>,
}

/// The task that owns a lane's process.
struct Keeper {
    orders: mpsc::UnboundedSender<Order>,
    task: JoinHandle<()>,
}

enum Order {
    Work(Job),
    /// The handler of this message was dropped, at its timeout or at the grace.
    Gone(String),
}

struct Job {
    id: String,
    line: Vec<u8>,
    reply: oneshot::Sender<Result<(), HandlerError>>,
}

impl Lines {
    /// `processes` places, each for `window` messages at a time. The tasks that own them run where this is called.
    pub(crate) fn new(spec: Spec, processes: usize, window: usize) -> Arc<Self> {
        let lane = || Lane { room: Semaphore::new(window), keeper: Mutex::new(None) };
        let lanes = (0..processes.max(1)).map(|_| lane()).collect();
        Arc::new(Self {
            spec: Arc::new(spec),
            runtime: Handle::current(),
            window: window.max(1),
            lanes,
            slots: AtomicUsize::new(0),
        })
    }

    /// The lane of a new slot: the first `window` slots share the first process, and so on.
    pub(crate) fn seat(&self) -> usize {
        (self.slots.fetch_add(1, Ordering::Relaxed) / self.window) % self.lanes.len().max(1)
    }

    /// Has a message handled by a lane's process.
    pub(crate) async fn handle(&self, lane: usize, received: Received<Raw>) -> Result<(), HandlerError> {
        let gone = || HandlerError::retry(format!("`{}` is being stopped", self.spec.program()));
        let lane = self.lanes.get(lane).ok_or_else(gone)?;
        let _room = lane.room.acquire().await.map_err(|_| gone())?;
        let (reply, answer) = oneshot::channel();
        let id = received.envelope().id.to_string();
        let line = talk::line(received.envelope(), received.attempt());
        let orders = self.orders(lane);
        orders.send(Order::Work(Job { id: id.clone(), line, reply })).map_err(|_| gone())?;
        let mut watch = Watch { orders, id, answered: false };
        let result = answer.await.map_err(|_| gone());
        watch.answered = true;
        result?
    }

    /// The lane's task, started where there is none.
    fn orders(&self, lane: &Lane) -> mpsc::UnboundedSender<Order> {
        let mut keeper = lane.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = keeper.as_ref().filter(|running| !running.task.is_finished()) {
            return running.orders.clone();
        }
        let (orders, hear) = mpsc::unbounded_channel();
        let task = self.runtime.spawn(keep(self.spec.clone(), hear));
        *keeper = Some(Keeper { orders: orders.clone(), task });
        orders
    }

    /// Ends the processes: the end of their input, then KILL after `patience`.
    pub(crate) async fn close(&self, patience: Duration) {
        for lane in &self.lanes {
            lane.room.close();
        }
        let deadline = tokio::time::Instant::now() + patience;
        for lane in &self.lanes {
            let keeper = lane.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(Keeper { orders, task }) = keeper {
                drop(orders);
                let _ = tokio::time::timeout_at(deadline, task).await;
            }
        }
    }
}

/// Says that the handler was dropped before its answer.
struct Watch {
    orders: mpsc::UnboundedSender<Order>,
    id: String,
    answered: bool,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.answered {
            let _ = self.orders.send(Order::Gone(std::mem::take(&mut self.id)));
        }
    }
}

/// Keeps a process running as long as there is work for it.
async fn keep(spec: Arc<Spec>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut pause = Duration::ZERO;
    while let Some(order) = orders.recv().await {
        let Order::Work(first) = order else { continue };
        tokio::time::sleep(pause).await;
        if first.reply.is_closed() {
            continue;
        }
        let born = Instant::now();
        let why = match Link::start(&spec, Vec::new()) {
            Ok((link, streams)) => match serve(&spec, link, streams, first, &mut orders).await {
                Leave::Closed => return,
                Leave::Broken(why) => why,
            },
            Err(error) => {
                let why = format!("could not start `{}`: {error}", spec.program());
                let _ = first.reply.send(Err(HandlerError::retry(&why)));
                why
            }
        };
        pause = if born.elapsed() > GOOD_LIFE { FIRST_PAUSE } else { (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE) };
        tracing::warn!(program = spec.program(), restart_in = ?pause, "{}", crate::text::shown(&why));
    }
}

enum Leave {
    /// No handler is left.
    Closed,
    /// The process died, lied, or was too slow.
    Broken(String),
}

/// Serves with one process until it ends.
async fn serve(
    spec: &Spec,
    mut link: Link,
    streams: Streams,
    first: Job,
    orders: &mut mpsc::UnboundedReceiver<Order>,
) -> Leave {
    let mut held = VecDeque::new();
    let tail = Arc::new(Mutex::new(Tail::default()));
    let mut errors = tokio::spawn(read_errors(streams.stderr, spec.program().to_string(), tail.clone()));
    let (said, mut answers) = mpsc::channel(64);
    tokio::spawn(listen(streams.stdout, said));
    hand_over(&mut link, first, &mut held).await;
    let why = loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(Order::Work(job)) => hand_over(&mut link, job, &mut held).await,
                Some(Order::Gone(id)) if held.iter().any(|job| job.id == id && job.reply.is_closed()) => {
                    break format!("it was ended, as message {id} took too long");
                }
                Some(Order::Gone(_)) => {}
                None => {
                    link.end_input().await;
                    link.finish(PATIENCE).await;
                    return Leave::Closed;
                }
            },
            line = answers.recv() => match line {
                Some(Ok(line)) => if let Err(why) = take(&line, &mut held) { break why },
                Some(Err(why)) => break why,
                None => break "it ended its output".to_string(),
            },
        }
    };
    // Read on, so that it does not die of a closed pipe while it ends.
    tokio::spawn(async move { while answers.recv().await.is_some() {} });
    // It may be gone already, and then its exit says more than a broken pipe.
    let why = match tokio::time::timeout(Duration::from_millis(100), link.wait()).await {
        Ok(Ok(status)) => format!("it ended with {}", ending(status)),
        _ => {
            // The next process does not wait for this one's end.
            tokio::spawn(link.terminate());
            why
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(100), &mut errors).await;
    let stderr = tail.lock().unwrap_or_else(PoisonError::into_inner).text();
    let why = format!("`{}`: {why}{}{stderr}", spec.program(), if stderr.is_empty() { "" } else { ": " });
    for job in held {
        let _ = job.reply.send(Err(HandlerError::retry(&why)));
    }
    Leave::Broken(why)
}

async fn hand_over(link: &mut Link, job: Job, held: &mut VecDeque<Job>) {
    if !job.reply.is_closed() {
        link.feed(&job.line).await;
        held.push_back(job);
    }
}

/// Gives an answer to the oldest held message of its id.
fn take(line: &[u8], held: &mut VecDeque<Job>) -> Result<(), String> {
    let (id, answer) = talk::answer(line)?;
    let at = held.iter().position(|job| job.id == id);
    let job = at
        .and_then(|at| held.remove(at))
        .ok_or_else(|| format!("it answered for id `{}`, which it does not hold", crate::text::cut(&id, 80)))?;
    let result = match answer {
        Answer::Done => Ok(()),
        Answer::Fail { why } => Err(HandlerError::fail(why)),
        Answer::Retry { why, after: None } => Err(HandlerError::retry(why)),
        Answer::Retry { why, after: Some(after) } => Err(HandlerError::retry(why).after(after)),
    };
    let _ = job.reply.send(result);
    Ok(())
}

/// Cuts the output into lines; empty ones are skipped.
async fn listen(stdout: ChildStdout, said: mpsc::Sender<Result<Vec<u8>, String>>) {
    let mut lines = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let limit = talk::LONGEST as u64 + 1;
        match (&mut lines).take(limit).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) if line.len() > talk::LONGEST => {
                let _ = said.send(Err("it answered with a line above 1 MiB".into())).await;
                return;
            }
            Ok(_) if line.trim_ascii().is_empty() => {}
            Ok(_) => {
                if said.send(Ok(line)).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Its stderr goes to the log, as its stdout is taken; the end of it is kept for the error.
async fn read_errors(stderr: ChildStderr, program: String, tail: Arc<Mutex<Tail>>) {
    let mut lines = BufReader::new(stderr);
    let mut line = Vec::new();
    while let Ok(1..) = (&mut lines).take(8192).read_until(b'\n', &mut line).await {
        tail.lock().unwrap_or_else(PoisonError::into_inner).push(&line);
        let text = String::from_utf8_lossy(&line);
        tracing::info!(target: "handler", program, "{}", crate::text::shown(text.trim_end_matches(['\n', '\r'])));
        line.clear();
    }
}
