//! What the broad conformance suite does not see: threads, paused time, the life of a store.

#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

use std::{collections::BTreeSet, sync::Arc, thread, time::Duration};

use postroom_core::{
    Broker, Browse, Count, Counts, Declaration, DeclareMode, Dsn, Envelope, ErrorKind, Extended, Groups, Lease, Name,
    Outgoing, Place, Settled, Settlement, Source, State, Subscription, TransportError,
};
use postroom_memory::{Memory, MemoryConfig, MemorySource};
use tokio::time::{Instant, advance};

const LEASE: Duration = Duration::from_secs(10);

fn queue() -> Place {
    Place::queue("q").unwrap()
}

fn group(name: &str) -> Place {
    Place::group("t", name).unwrap()
}

async fn connect(config: &MemoryConfig, places: &[Place]) -> Memory {
    let memory = Memory::connect(config).await.unwrap();
    let what: Vec<_> = places.iter().cloned().map(Declaration::new).collect();
    memory.declare(&what, DeclareMode::Create).await.unwrap();
    memory
}

async fn fresh() -> Memory {
    connect(&MemoryConfig::private(), &[queue()]).await
}

async fn send(memory: &Memory, to: &Place, bodies: &[&'static str]) {
    let batch: Vec<_> = bodies.iter().map(|body| Outgoing::new(to.clone(), Envelope::new(*body))).collect();
    for answer in memory.publish(&batch).await {
        answer.unwrap();
    }
}

async fn read(memory: &Memory, place: &Place) -> MemorySource {
    memory.subscribe(Subscription::new(place.clone(), "me", LEASE)).await.unwrap()
}

async fn bodies(source: &MemorySource, max: usize) -> Vec<String> {
    let taken = source.pull(max).await.unwrap();
    taken.iter().map(|incoming| String::from_utf8(incoming.envelope.body.to_vec()).unwrap()).collect()
}

async fn count(memory: &Memory) -> Result<Counts, TransportError> {
    memory.count().unwrap().count(&queue()).await
}

async fn settle(source: &MemorySource, token: &postroom_memory::Token, how: Settlement) -> Settled {
    source.settle(&[(token, how)]).await.remove(0).unwrap()
}

fn kind<T>(answer: Result<T, TransportError>) -> Option<ErrorKind> {
    answer.err().map(|error| error.kind())
}

fn on_thread<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> thread::JoinHandle<T> {
    thread::spawn(|| tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work))
}

#[test]
fn two_consumers_on_two_threads_share_each_once_and_wake_at_once() {
    let config = MemoryConfig::new("threads");
    let reader = |config: MemoryConfig| {
        on_thread(async move {
            let memory = connect(&config, &[queue()]).await;
            let source = read(&memory, &queue()).await;
            let mut seen = Vec::new();
            loop {
                let asked = std::time::Instant::now();
                let taken = source.pull(3).await.unwrap();
                if asked.elapsed() > Duration::from_secs(4) {
                    panic!("missed a wake-up after {} messages", seen.len());
                }
                for incoming in taken {
                    assert_eq!(settle(&source, &incoming.token, Settlement::Ack).await, Settled::Done);
                    if incoming.envelope.body == "end" {
                        return seen;
                    }
                    seen.push(incoming.envelope.id.clone());
                }
            }
        })
    };
    let readers = [reader(config.clone()), reader(config.clone())];
    let sent = on_thread(async move {
        let memory = connect(&config, &[queue()]).await;
        for round in 0..2_000 {
            send(&memory, &queue(), &["a", "b"]).await;
            if round % 7 == 0 {
                thread::sleep(Duration::from_micros(50));
            }
        }
        // One for each, alone, so that none of the readers takes both.
        for _ in 0..2 {
            send(&memory, &queue(), &["end"]).await;
            thread::sleep(Duration::from_millis(200));
        }
    });
    sent.join().unwrap();
    let seen: Vec<_> = readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
    assert_eq!(seen.len(), 4_000);
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>().len(), 4_000);
}

#[tokio::test(start_paused = true)]
async fn an_idle_pull_answers_empty_after_five_seconds() {
    let memory = fresh().await;
    let (source, began) = (read(&memory, &queue()).await, Instant::now());
    assert!(source.pull(1).await.unwrap().is_empty());
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(4_990) && took <= Duration::from_millis(5_010), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn one_wake_ends_one_pull() {
    let memory = fresh().await;
    let (source, began) = (read(&memory, &queue()).await, Instant::now());
    source.wake();
    source.wake();
    assert!(source.pull(1).await.unwrap().is_empty());
    assert_eq!(began.elapsed(), Duration::ZERO);
    source.pull(1).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(4), "a used wake ended another pull");
    source.wake();
    send(&memory, &queue(), &["a"]).await;
    assert_eq!(source.pull(1).await.unwrap().len(), 1, "a woken pull brings what is there");
}

#[tokio::test(start_paused = true)]
async fn delays_and_leases_end_by_tend_alone() {
    let memory = fresh().await;
    let second = Duration::from_secs(1);
    memory.publish(&[Outgoing::new(queue(), Envelope::new("later")).after(second)]).await.remove(0).unwrap();
    let source = read(&memory, &queue()).await;
    assert_eq!(memory.tend(10).await.unwrap().next, Some(second));
    advance(second * 2).await;
    source.wake();
    assert!(source.pull(1).await.unwrap().is_empty(), "due, but not tended");
    let tended = memory.tend(10).await.unwrap();
    assert_eq!((tended.promoted, tended.next), (1, None));
    let held = source.pull(1).await.unwrap().remove(0);
    advance(LEASE - second).await;
    let early = memory.tend(10).await.unwrap();
    assert_eq!((early.reclaimed, early.next), (0, Some(second)));
    let other = read(&memory, &queue()).await;
    assert_eq!(settle(&other, &held.token, Settlement::Ack).await, Settled::LeaseLost, "another source's delivery");
    advance(LEASE * 2).await;
    // Expired and not taken back: still its owner's.
    assert_eq!(source.lease().unwrap().extend(&[&held.token]).await.remove(0).unwrap(), Extended::Done);
    advance(LEASE).await;
    assert_eq!(memory.tend(10).await.unwrap().reclaimed, 1);
    assert_eq!(settle(&source, &held.token, Settlement::Ack).await, Settled::LeaseLost);
    let again = source.pull(1).await.unwrap().remove(0);
    assert_eq!((again.delivered, &again.position), (Some(2), &held.position));
    assert_eq!(settle(&source, &held.token, Settlement::Ack).await, Settled::LeaseLost);
    assert_eq!(source.lease().unwrap().extend(&[&held.token]).await.remove(0).unwrap(), Extended::Lost);
    assert_eq!(settle(&source, &again.token, Settlement::Ack).await, Settled::Done);
    assert_eq!(settle(&source, &again.token, Settlement::Ack).await, Settled::Already);
}

#[tokio::test(start_paused = true)]
async fn tend_does_at_most_max_and_says_that_there_is_more() {
    let memory = fresh().await;
    let one = || Outgoing::new(queue(), Envelope::new("x")).after(Duration::from_secs(1));
    memory.publish(&[one(), one(), one()]).await;
    memory.publish(&[one().after(Duration::MAX)]).await.remove(0).unwrap();
    advance(Duration::from_secs(1)).await;
    let first = memory.tend(2).await.unwrap();
    assert_eq!((first.promoted, first.more), (2, true));
    let second = memory.tend(2).await.unwrap();
    assert_eq!((second.promoted, second.more), (1, false));
    assert!(second.next.unwrap() > Duration::from_secs(3600));
}

#[tokio::test]
async fn what_is_released_takes_its_old_place_and_its_count_back() {
    let memory = fresh().await;
    send(&memory, &queue(), &["a", "b", "c", "d"]).await;
    let source = read(&memory, &queue()).await;
    let held = source.pull(3).await.unwrap();
    let [a, b, c] = held.as_slice() else { panic!("three were asked for") };
    let both = [(&c.token, Settlement::Release), (&a.token, Settlement::Release)];
    assert!(source.settle(&both).await.into_iter().all(|answer| answer.unwrap() == Settled::Done));
    assert_eq!(settle(&source, &a.token, Settlement::Ack).await, Settled::Already);
    let next = source.pull(1).await.unwrap().remove(0);
    assert_eq!((&*next.envelope.body, next.delivered), (&b"a"[..], Some(1)));
    assert_eq!(settle(&source, &a.token, Settlement::Ack).await, Settled::LeaseLost);
    assert_eq!(bodies(&source, 9).await, ["c", "d"]);
    assert_eq!(settle(&source, &b.token, Settlement::Ack).await, Settled::Done);
}

#[tokio::test]
async fn close_and_drop_give_back_at_once_with_the_count_as_it_was() {
    let config = MemoryConfig::private();
    let (memory, other) = (connect(&config, &[queue()]).await, connect(&config, &[queue()]).await);
    send(&memory, &queue(), &["a"]).await;
    let dropped = read(&memory, &queue()).await;
    assert_eq!(dropped.pull(1).await.unwrap().len(), 1);
    drop(dropped);
    let source = read(&memory, &queue()).await;
    let held = source.pull(1).await.unwrap().remove(0);
    assert_eq!(held.delivered, Some(2));
    let theirs = read(&other, &queue()).await;
    memory.close().await.unwrap();
    assert_eq!(theirs.pull(1).await.unwrap().remove(0).delivered, Some(3));
    assert_eq!(kind(source.settle(&[(&held.token, Settlement::Ack)]).await.remove(0)), Some(ErrorKind::Stopped));
    assert_eq!(kind(source.pull(1).await), Some(ErrorKind::Stopped));
    assert_eq!(kind(memory.tend(1).await), Some(ErrorKind::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_closed_waiter_passes_its_message_on() {
    let memory = Arc::new(fresh().await);
    let (one, two) = (read(&memory, &queue()).await, read(&memory, &queue()).await);
    let began = Instant::now();
    let (first, second, ()) = tokio::join!(biased; one.pull(1), two.pull(1), async {
        send(&memory, &queue(), &["a"]).await;
        one.close().await.unwrap();
    });
    assert_eq!(kind(first), Some(ErrorKind::Stopped));
    assert_eq!(second.unwrap().len(), 1);
    assert_eq!(began.elapsed(), Duration::ZERO, "it came by the idle time-out only");
}

#[tokio::test(start_paused = true)]
async fn one_batch_wakes_every_waiter() {
    let memory = fresh().await;
    let (one, two) = (read(&memory, &queue()).await, read(&memory, &queue()).await);
    let began = Instant::now();
    let place = queue();
    let (first, second, ()) =
        tokio::join!(biased; bodies(&one, 1), bodies(&two, 1), send(&memory, &place, &["a", "b"]));
    assert_eq!((first.len(), second.len(), began.elapsed()), (1, 1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn what_a_close_gives_back_wakes_every_waiter() {
    let memory = fresh().await;
    send(&memory, &queue(), &["a", "b"]).await;
    let holder = read(&memory, &queue()).await;
    assert_eq!(holder.pull(2).await.unwrap().len(), 2);
    let (one, two) = (read(&memory, &queue()).await, read(&memory, &queue()).await);
    let began = Instant::now();
    let (first, second, closed) = tokio::join!(biased; bodies(&one, 1), bodies(&two, 1), holder.close());
    closed.unwrap();
    assert_eq!((first.len(), second.len(), began.elapsed()), (1, 1, Duration::ZERO));
}

#[tokio::test]
async fn a_removed_group_ends_its_sources_and_stays_removed() {
    let memory = connect(&MemoryConfig::private(), &[group("g"), group("h")]).await;
    send(&memory, &Place::topic("t").unwrap(), &["a", "b"]).await;
    let source = read(&memory, &group("g")).await;
    let held = source.pull(1).await.unwrap().remove(0);
    let (t, g) = (Name::new("t").unwrap(), Name::new("g").unwrap());
    assert!(Groups::remove(memory.groups().unwrap(), &t, &g).await.unwrap());
    assert_eq!(kind(source.pull(1).await), Some(ErrorKind::NotFound));
    assert_eq!(settle(&source, &held.token, Settlement::Release).await, Settled::Already);
    memory.declare(&[Declaration::new(group("g"))], DeclareMode::Create).await.unwrap();
    send(&memory, &Place::topic("t").unwrap(), &["c"]).await;
    assert_eq!(kind(source.pull(1).await), Some(ErrorKind::NotFound));
    assert_eq!(bodies(&read(&memory, &group("g")).await, 9).await, ["c"]);
    assert_eq!(bodies(&read(&memory, &group("h")).await, 9).await, ["a", "b", "c"]);
}

#[tokio::test]
async fn a_removed_record_can_be_stored_again_and_every_state_can_be_removed() {
    let memory = fresh().await;
    let hour = Duration::from_secs(3600);
    send(&memory, &queue(), &["flying", "waiting"]).await;
    memory.publish(&[Outgoing::new(queue(), Envelope::new("delayed")).after(hour)]).await.remove(0).unwrap();
    let source = read(&memory, &queue()).await;
    let held = source.pull(1).await.unwrap().remove(0);
    let page = memory.browse().unwrap().page(&queue(), None, None, 2).await.unwrap();
    let rest = memory.browse().unwrap().page(&queue(), None, page.next.as_ref(), 2).await.unwrap();
    assert_eq!(rest.next, None);
    let items = [page.items, rest.items].concat();
    let states: Vec<_> = items.iter().map(|item| item.state).collect();
    assert_eq!(states, [State::InFlight, State::Waiting, State::Delayed]);
    let handles: Vec<_> = items.iter().map(|item| item.handle.clone()).collect();
    assert_eq!(Browse::remove(memory.browse().unwrap(), &queue(), &handles).await.unwrap(), [true; 3]);
    assert_eq!(Browse::remove(memory.browse().unwrap(), &queue(), &handles).await.unwrap(), [false; 3]);
    assert_eq!(settle(&source, &held.token, Settlement::Ack).await, Settled::Already);
    let counts = count(&memory).await.unwrap();
    assert_eq!((counts.waiting, counts.in_flight, counts.delayed), (Some(0), Some(0), Some(0)));

    let store = Place::store("failed").unwrap();
    memory.declare(&[Declaration::new(store.clone())], DeclareMode::Create).await.unwrap();
    let mut failed = Envelope::new("bad");
    failed.track_mut().failure = Some(postroom_core::Failure::new("r1".into(), postroom_core::Reason::Final, "no", 0));
    let record = Outgoing::new(store.clone(), failed);
    memory.publish(&[record.clone(), record.clone()]).await;
    let found = memory.browse().unwrap().find(&store, "r1").await.unwrap();
    assert_eq!(found.len(), 1);
    Browse::remove(memory.browse().unwrap(), &store, &[found[0].handle.clone()]).await.unwrap();
    memory.publish(&[record]).await;
    assert_eq!(memory.browse().unwrap().find(&store, "r1").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_store_lives_as_long_as_its_configuration_and_namespaces_are_apart() {
    let config = MemoryConfig::new("life");
    let memory = connect(&config, &[queue()]).await;
    send(&memory, &queue(), &["a"]).await;
    drop(memory);
    let again = Memory::connect(&MemoryConfig::new("life")).await.unwrap();
    assert_eq!(count(&again).await.unwrap().waiting, Some(1));
    let apart = config.clone().in_namespace(Some(Name::new("n").unwrap()));
    let other = Memory::connect(&apart).await.unwrap();
    assert_eq!(kind(count(&other).await), Some(ErrorKind::NotFound));
    drop((again, config, other, apart));
    let new = Memory::connect(&MemoryConfig::new("life")).await.unwrap();
    assert_eq!(kind(count(&new).await), Some(ErrorKind::NotFound));
}

#[tokio::test]
async fn a_dsn_names_its_instance() {
    let read = |dsn: &str| Dsn::parse(dsn).and_then(|dsn| MemoryConfig::from_dsn(&dsn));
    let named = connect(&read("memory:dsn?queue=q").unwrap(), &[queue()]).await;
    let same = Memory::connect(&MemoryConfig::new("dsn")).await.unwrap();
    send(&named, &queue(), &["a"]).await;
    assert_eq!(count(&same).await.unwrap().waiting, Some(1));
    let (one, two) = (read("memory:?queue=q").unwrap(), read("memory:?queue=q").unwrap());
    let _one = connect(&one, &[queue()]).await;
    assert_eq!(kind(count(&Memory::connect(&two).await.unwrap()).await), Some(ErrorKind::NotFound));
    for wrong in ["memory://host/x", "memory:a/b", "memory:x?colour=red", "sqlite:x"] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}
