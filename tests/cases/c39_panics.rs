//! C39: a panic costs its message one attempt, and nothing else.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use actix::{Actor, Context, Handler, ResponseFuture, Supervised};
use postroom::{HandlerError, Layer, LocalFuture, Next, Outcome, Received, TypeName};

use crate::harness::{Job, Log, builder, each, failed, idle, jobs, quick, send};

struct PanicsOnDrop;
impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("panicked in a drop");
    }
}

/// Jobs below 10 panic, each in another way.
async fn work(n: u64, lock: Arc<Mutex<u64>>) -> Result<(), HandlerError> {
    match n {
        0 => panic!("panicked at once"),
        1 => {
            tokio::time::sleep(Duration::from_millis(1)).await;
            panic!("panicked after an await");
        }
        2 => std::panic::panic_any(42_u64),
        3 => {
            let _held = lock.lock().map_err(|_| HandlerError::retry("poisoned"))?;
            panic!("panicked while holding a lock");
        }
        4 => drop(PanicsOnDrop),
        _ => {}
    }
    Ok(())
}

#[test]
fn c39_panicking_functions() {
    each(|on| async move {
        let (log, (builder, probe)) = (Log::default(), builder());
        let mut queue = on.queue();
        queue.options.retry = quick(1);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (seen, now, peak) = (log.clone(), running, most.clone());
        let lock = Arc::new(Mutex::new(0));
        let handler = move |job: Received<Job>| {
            let (log, now, peak, lock) = (seen.clone(), now.clone(), peak.clone(), lock.clone());
            async move {
                if job.n < 10 {
                    return work(job.n, lock).await;
                }
                peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(5)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                log.add(job.n.to_string());
                Ok(())
            }
        };
        let node = builder.transport(queue).handle(jobs().concurrency(2), handler).start().await.unwrap();
        send(&node, (0..5).chain(10..20)).await;
        idle(&probe, &node).await;
        assert_eq!(log.all().len(), 10);
        let records = failed(&node).await;
        assert_eq!(records.len(), 5, "{:?}", records.iter().map(|r| r.failure().cloned()).collect::<Vec<_>>());
        for record in &records {
            let failure = record.failure().unwrap();
            assert_eq!((failure.reason.as_str(), record.envelope().attempts()), ("attempts", 2));
        }
        assert!(records.iter().any(|record| &*record.failure().unwrap().error == "panicked after an await"));
        // Slots are back: twenty more run two at a time.
        most.store(0, Ordering::SeqCst);
        send(&node, 20..40).await;
        idle(&probe, &node).await;
        assert_eq!(log.all().len(), 30);
        assert_eq!(most.load(Ordering::SeqCst), 2);
        let receipt = node.stop().await;
        assert_eq!(receipt.failed, 5);
        assert_eq!(
            receipt.deliveries,
            receipt.acked + receipt.retried + receipt.failed + receipt.released + receipt.lost
        );
    });
}

struct Worker {
    log: Log,
    restarts: usize,
}
impl Actor for Worker {
    type Context = Context<Self>;
}
impl Supervised for Worker {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.restarts += 1;
    }
}
impl Handler<Received<Job>> for Worker {
    type Result = ResponseFuture<Result<(), HandlerError>>;
    fn handle(&mut self, job: Received<Job>, _: &mut Self::Context) -> Self::Result {
        assert_ne!(job.n, 0, "the actor panicked");
        self.log.add(format!("{} after {} restarts", job.n, self.restarts));
        Box::pin(async move { if job.n == 1 { panic!("its future panicked") } else { Ok(()) } })
    }
}

#[test]
fn c39_a_panicking_actor_is_restarted_with_its_state() {
    each(|on| async move {
        let (log, (builder, probe)) = (Log::default(), builder());
        let mut queue = on.queue();
        queue.options.retry = quick(0);
        let seen = log.clone();
        let node = builder
            .transport(queue)
            .actor(jobs(), move || Worker { log: seen.clone(), restarts: 0 })
            .start()
            .await
            .unwrap();
        send(&node, [5, 0, 6, 1, 7]).await;
        idle(&probe, &node).await;
        assert_eq!(log.all(), ["5 after 0 restarts", "6 after 1 restarts", "1 after 1 restarts", "7 after 1 restarts"]);
        let records = failed(&node).await;
        assert_eq!(records.len(), 2);
        assert!(records.iter().any(|record| record.failure().unwrap().error.contains("the actor panicked")));
        node.stop().await;
    });
}

struct Bad;
impl Layer for Bad {
    fn handle<'a>(&'a self, next: Next<'a>) -> LocalFuture<'a, Outcome> {
        assert!(next.envelope().message_type != Some(TypeName::new("bad").unwrap()), "the layer panicked");
        next.run()
    }
}

#[test]
fn c39_a_panicking_layer_counts_as_the_handlers() {
    each(|on| async move {
        let (log, (builder, probe)) = (Log::default(), builder());
        let mut queue = on.queue();
        queue.options.retry = quick(0);
        let seen = log.clone();
        let any = postroom::HandlerOptions::new("q", "*").unwrap();
        let handler = move || {
            let log = seen.clone();
            move |_: Received<postroom::Raw>| {
                let log = log.clone();
                async move {
                    log.add("ran");
                    Ok::<(), HandlerError>(())
                }
            }
        };
        let node = builder.layer(Bad).transport(queue).handle_with(any, handler).start().await.unwrap();
        let mut bad = postroom::Envelope::new(&b"x"[..]);
        bad.message_type = Some(TypeName::new("bad").unwrap());
        node.send_all("q", vec![(bad, Duration::ZERO)]).await.unwrap();
        send(&node, [1, 2]).await;
        idle(&probe, &node).await;
        assert_eq!(log.all().len(), 2);
        assert_eq!(failed(&node).await.len(), 1);
        node.stop().await;
    });
}
