//! A subscription.
//!
//! Waiting has a connection of its own, without any time limit of the client's, so that no reply is ever given up and
//! nothing else waits behind it. All else goes through the connection of the broker.

use std::{
    cell::{Cell, RefCell},
    fmt,
    pin::pin,
    rc::Rc,
    time::Duration,
};

use postroom_core::{
    Extended, Incoming, Lease, Place, Position, Settled, Settlement, Source, Subscription, Text, TransportError,
};
use redis::{
    Cmd, Pipeline, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::sync::Notify;

use crate::{
    entry,
    lane::Lane,
    link::{Link, Script, array, exactly, failure, number, text},
};

/// How long the server holds a read that finds nothing; well below the 5 s after which a pull must have answered.
const BLOCK_MS: u64 = 2_000;
/// The pause between two tries to end a read that has not reached the server yet.
const UNBLOCK_AGAIN: Duration = Duration::from_millis(1);

/// One hand-over of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Which of the lane's streams, from 1.
    stream: u8,
    id: Text,
    count: u32,
    /// Until when, by the server's clock, it surely is its owner's: from before the read was sent.
    sure: i64,
}

/// An open subscription. One that is dropped unclosed leaves what it holds to the end of its lease.
pub struct RedisSource {
    reading: Rc<Reading>,
}

/// What a source and its broker share.
pub(crate) struct Reading {
    link: Rc<Link>,
    place: Place,
    lane: Lane,
    /// The consumer's name: owner, transport, number, connection, and the lease, by which all of us take back.
    name: String,
    lease_ms: i64,
    reader: RefCell<Option<MultiplexedConnection>>,
    client: i64,
    closed: Cell<bool>,
    woken: Cell<bool>,
    signal: Notify,
    pulling: Cell<bool>,
    pulled: Notify,
    /// The bells that were heard since the last look at what is free; none: nothing is known to be free.
    bells: RefCell<Option<Vec<String>>>,
}

/// A read's reply and the time before it.
type Reply = Result<Vec<Value>, redis::RedisError>;

impl RedisSource {
    pub(crate) async fn open(link: &Rc<Link>, to: Subscription) -> Result<Self, TransportError> {
        let lane = link.lane(&to.place)?;
        let mut reader = link.another().await?;
        let asked: Result<i64, _> = redis::cmd("CLIENT").arg("ID").query_async(&mut reader).await;
        let client = asked.map_err(|error| failure(&link.at, error))?;
        let number = link.subscribed.get();
        link.subscribed.set(number.saturating_add(1));
        let lease_ms = i64::try_from(to.lease.as_millis()).unwrap_or(i64::MAX).clamp(1, 1 << 50);
        // After a lost connection the same transport subscribes in the same order: what its predecessor held is free.
        let before = format!("{}.{:x}.{number}.", to.owner, link.instance);
        let name = format!("{before}{client}~{lease_ms}");
        let mut join = link.call(Script::Join, &lane);
        join.arg(before).arg(&name);
        if text(link.run(&join).await?).as_deref() != Some("D") {
            return Err(crate::broker::missing(&to.place));
        }
        link.tends(&to.place);
        let reading = Rc::new(Reading {
            link: link.clone(),
            place: to.place,
            lane,
            name,
            lease_ms,
            reader: RefCell::new(Some(reader)),
            client,
            closed: Cell::new(false),
            woken: Cell::new(false),
            signal: Notify::new(),
            pulling: Cell::new(false),
            pulled: Notify::new(),
            bells: RefCell::new(Some(Vec::new())),
        });
        let mut sources = link.sources.borrow_mut();
        sources.retain(|source| source.strong_count() > 0);
        sources.push(Rc::downgrade(&reading));
        drop(sources);
        Ok(Self { reading })
    }
}

impl Reading {
    fn open_still(&self) -> Result<(), TransportError> {
        if self.closed.get() { Err(TransportError::stopped()) } else { self.link.open_still() }
    }

    fn ended(&self) -> bool {
        self.closed.get() || self.woken.get()
    }

    async fn pull(&self, max: usize) -> Result<Vec<Incoming<Token>>, TransportError> {
        let max = max.max(1);
        loop {
            self.open_still()?;
            // Before the look at what is free: a node that was told to stop must not take what it just gave back.
            if self.woken.take() {
                return Ok(Vec::new());
            }
            let bells = self.bells.borrow_mut().take();
            if let Some(bells) = bells {
                let taken = self.take(max, &bells).await?;
                if !taken.is_empty() {
                    // There may be more.
                    *self.bells.borrow_mut() = Some(Vec::new());
                    self.woken.set(false);
                    return Ok(taken);
                }
            }
            let reply = self.wait(max).await.map_err(|error| failure(&self.link.at, error))?;
            self.open_still()?;
            let (taken, heard) = self.understand(reply, max).await?;
            if !taken.is_empty() || !heard {
                self.woken.set(false);
                return Ok(taken);
            }
        }
    }

    /// The blocking read, ended early by `wake` or close.
    async fn wait(&self, max: usize) -> Reply {
        let Some(mut reader) = self.reader.borrow().clone() else { return Ok(Vec::new()) };
        let mut read = Pipeline::with_capacity(2);
        read.cmd("TIME");
        read.cmd("XREADGROUP").arg("GROUP").arg(&self.lane.group).arg(&self.name);
        read.arg("COUNT").arg(max).arg("BLOCK").arg(BLOCK_MS).arg("STREAMS");
        let streams = || self.lane.streams().chain([self.lane.bell()]);
        streams().for_each(|key| _ = read.arg(key));
        streams().for_each(|_| _ = read.arg(">"));
        let mut reply = pin!(reader.req_packed_commands(&read, 0, 2));
        loop {
            tokio::select! {
                biased;
                reply = &mut reply => return reply,
                () = self.signal.notified() => {}
            }
            while self.ended() {
                let unblocked: Result<i64, _> =
                    self.link.query(redis::cmd("CLIENT").arg("UNBLOCK").arg(self.client)).await;
                if !matches!(unblocked, Ok(0)) {
                    break;
                }
                // Not blocked: it has its answer, or the server has not read it yet.
                tokio::select! {
                    biased;
                    reply = &mut reply => return reply,
                    () = tokio::time::sleep(UNBLOCK_AGAIN) => {}
                }
            }
        }
    }

    /// What a read brought, and whether a bell was heard.
    async fn understand(&self, reply: Vec<Value>, max: usize) -> Result<(Vec<Incoming<Token>>, bool), TransportError> {
        let mut reply = reply.into_iter();
        let (Some(time), Some(streams)) = (reply.next(), reply.next()) else { return Ok((Vec::new(), false)) };
        if let Value::ServerError(error) = streams {
            return Err(failure(&self.link.at, error.into()));
        }
        let sure = seconds(time).ok_or_else(|| self.link.odd())?.saturating_add(self.lease_ms);
        let (mut taken, mut heard) = (Vec::new(), None);
        for stream in array(streams).ok_or_else(|| self.link.odd())? {
            let [key, entries] = exactly::<2>(stream).ok_or_else(|| self.link.odd())?;
            let (key, entries) = (text(key), array(entries).ok_or_else(|| self.link.odd())?);
            let index = self.lane.streams().position(|name| key.as_deref() == Some(name));
            for entry in entries {
                let [id, fields] = exactly::<2>(entry).ok_or_else(|| self.link.odd())?;
                let id = text(id).ok_or_else(|| self.link.odd())?;
                match index {
                    None => heard.get_or_insert_with(Vec::new).push(id),
                    Some(index) => taken.extend(self.incoming(index + 1, id, 1, sure, fields)),
                }
            }
        }
        let rang = heard.is_some();
        if let Some(heard) = heard {
            self.bells.borrow_mut().get_or_insert_default().extend(heard);
        }
        if taken.len() > max {
            // The server counts for each stream apart.
            let surplus: Vec<_> = taken.split_off(max);
            let back: Vec<_> = surplus.iter().map(|one| (&one.token, Settlement::Release)).collect();
            for answer in self.settle(&back).await {
                answer?;
            }
        }
        Ok((taken, rang))
    }

    fn incoming(&self, stream: usize, id: String, count: u32, sure: i64, fields: Value) -> Option<Incoming<Token>> {
        let read = entry::read(&id, fields)?;
        let id = Text::from(id);
        let position = if stream == 1 { id.clone() } else { Text::from(format!("own:{id}")) };
        let token = Token { stream: u8::try_from(stream).unwrap_or(u8::MAX), id, count, sure };
        let mut incoming = Incoming::new(token, read.envelope);
        incoming.delivered = Some(count);
        incoming.position = Position::Text(position);
        incoming.oddities = read.oddities;
        Some(incoming)
    }

    /// What is free: given back, expired, or left by a predecessor.
    async fn take(&self, max: usize, bells: &[String]) -> Result<Vec<Incoming<Token>>, TransportError> {
        let mut call = self.link.call(Script::Take, &self.lane);
        call.arg(&self.name).arg(max);
        bells.iter().for_each(|bell| _ = call.arg(bell));
        let answer = self.link.run(&call).await?;
        if matches!(&answer, Value::BulkString(_)) {
            return Err(crate::broker::missing(&self.place));
        }
        let odd = || self.link.odd();
        let [now, taken, gone] = exactly::<3>(answer).ok_or_else(odd)?;
        let sure = number(&now).ok_or_else(odd)?.saturating_add(self.lease_ms);
        crate::broker::warn_gone(&self.place, gone);
        let mut incoming = Vec::new();
        for one in array(taken).ok_or_else(odd)? {
            let [stream, id, count, fields] = exactly::<4>(one).ok_or_else(odd)?;
            let (Some(stream), Some(id), Some(count)) = (number(&stream), text(id), number(&count)) else {
                return Err(odd());
            };
            let (stream, count) = (usize::try_from(stream).unwrap_or(0), u32::try_from(count).unwrap_or(u32::MAX));
            incoming.extend(self.incoming(stream, id, count, sure, fields));
        }
        Ok(incoming)
    }

    async fn settle(&self, batch: &[(&Token, Settlement)]) -> Vec<Result<Settled, TransportError>> {
        let mut call = self.link.call(Script::Settle, &self.lane);
        let sure = batch.iter().map(|(token, _)| token.sure).min().unwrap_or(0);
        call.arg(&self.name).arg(sure).arg(batch.len());
        for (token, how) in batch {
            let word = match how {
                Settlement::Ack => "a",
                Settlement::Retry { .. } => "r",
                Settlement::Release => "b",
            };
            call.arg(word).arg(token.stream).arg(&*token.id).arg(token.count);
            if let Settlement::Retry { replacement, after } = how {
                call.arg(crate::broker::millis(*after));
                entry::write(&mut call, replacement, true);
            }
        }
        self.each(&call, batch.len(), |answer| match answer {
            "D" => Some(Settled::Done),
            "A" => Some(Settled::Already),
            "L" => Some(Settled::LeaseLost),
            _ => None,
        })
        .await
    }

    async fn each<T: Copy>(
        &self,
        call: &Cmd,
        count: usize,
        read: impl Fn(&str) -> Option<T>,
    ) -> Vec<Result<T, TransportError>> {
        if count == 0 {
            return Vec::new();
        }
        if let Err(stopped) = self.open_still() {
            return vec![Err(stopped); count];
        }
        match self.link.answers(call, count).await {
            Err(error) => vec![Err(error); count],
            Ok(answers) => answers
                .iter()
                .map(|answer| read(answer).ok_or_else(|| crate::link::item(&self.link.at, answer)))
                .collect(),
        }
    }

    /// Ends the waiting pull, then gives back what is unsettled.
    pub(crate) async fn close(&self) -> Result<(), TransportError> {
        if self.closed.replace(true) {
            return Ok(());
        }
        self.signal.notify_one();
        while self.pulling.get() {
            self.pulled.notified().await;
        }
        self.reader.borrow_mut().take();
        let mut leave = self.link.call(Script::Join, &self.lane);
        leave.arg(&self.name).arg("");
        self.link.run(&leave).await.map(drop)
    }
}

/// A pull is on its way, until it has ended or was dropped with its connection.
struct Pulling<'a>(&'a Reading);

impl Drop for Pulling<'_> {
    fn drop(&mut self) {
        self.0.pulling.set(false);
        self.0.pulled.notify_waiters();
        self.0.pulled.notify_one();
    }
}

/// The answer to `TIME`, in milliseconds.
fn seconds(value: Value) -> Option<i64> {
    let [seconds, micros] = exactly::<2>(value)?;
    number(&seconds)?.checked_mul(1_000)?.checked_add(number(&micros)? / 1_000)
}

impl fmt::Debug for RedisSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSource").field("place", &self.reading.place).finish_non_exhaustive()
    }
}

impl Source for RedisSource {
    type Token = Token;
    type Lease = Self;

    async fn pull(&self, max: usize) -> Result<Vec<Incoming<Token>>, TransportError> {
        self.reading.pulling.set(true);
        let _pulling = Pulling(&self.reading);
        self.reading.pull(max).await
    }

    fn wake(&self) {
        self.reading.woken.set(true);
        self.reading.signal.notify_one();
    }

    async fn settle(&self, batch: &[(&Token, Settlement)]) -> Vec<Result<Settled, TransportError>> {
        self.reading.settle(batch).await
    }

    fn lease(&self) -> Option<&Self> {
        Some(self)
    }

    async fn close(&self) -> Result<(), TransportError> {
        self.reading.close().await
    }
}

impl Lease<Token> for RedisSource {
    async fn extend(&self, batch: &[&Token]) -> Vec<Result<Extended, TransportError>> {
        let reading = &self.reading;
        let mut call = reading.link.call(Script::Extend, &reading.lane);
        call.arg(&reading.name).arg(batch.len());
        for token in batch {
            call.arg(token.stream).arg(&*token.id).arg(token.count);
        }
        let read =
            |answer: &str| (answer == "D").then_some(Extended::Done).or((answer == "L").then_some(Extended::Lost));
        reading.each(&call, batch.len(), read).await
    }
}
