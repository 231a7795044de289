//! One connection: scripts, replies, errors.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
};

use postroom_core::{ErrorKind, Name, Place, TransportError};
use redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, Pipeline, RedisError, ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};

use crate::{config::RedisConfig, lane::Lane, source::Reading};

macro_rules! scripts {
    ($($name:ident $file:literal),+ $(,)?) => {
        /// The scripts, in the order of their hashes.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Script { $($name),+ }
        const SOURCES: &[&str] = &[$(concat!(include_str!("lua/common.lua"), include_str!(concat!("lua/", $file)))),+];
    };
}
scripts! {
    Declare "declare.lua", Publish "publish.lua", Topic "topic.lua", Store "store.lua", Settle "settle.lua",
    Extend "extend.lua", Take "take.lua", Join "join.lua", Tend "tend.lua", Trim "trim.lua", Count "count.lua",
    Page "page.lua", Remove "remove.lua", Forget "forget.lua",
}

/// A connection for all but waiting; what it has in common with its sources.
pub(crate) struct Link {
    client: Client,
    connection: MultiplexedConnection,
    hashes: Vec<String>,
    pub(crate) at: String,
    pub(crate) namespace: Option<Name>,
    pub(crate) instance: u64,
    pub(crate) closed: Cell<bool>,
    /// The places that it tends.
    pub(crate) places: RefCell<std::collections::BTreeSet<Place>>,
    pub(crate) sources: RefCell<Vec<Weak<Reading>>>,
    pub(crate) subscribed: Cell<u32>,
}

/// No time limit of the client's own: a reply that it gave up is a message that nobody gets. The runtime has limits.
fn patient() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None)
}

impl Link {
    pub(crate) async fn open(config: &RedisConfig) -> Result<Rc<Self>, TransportError> {
        let (client, at) = (config.client()?, config.at());
        let mut connection = connect(&client, &at).await?;
        let mut load = redis::pipe();
        for source in SOURCES {
            load.cmd("SCRIPT").arg("LOAD").arg(*source);
        }
        let hashes = load.query_async(&mut connection).await.map_err(|error| failure(&at, error))?;
        Ok(Rc::new(Self {
            client,
            connection,
            hashes,
            at,
            namespace: config.namespace().cloned(),
            instance: config.instance(),
            closed: Cell::new(false),
            places: RefCell::default(),
            sources: RefCell::default(),
            subscribed: Cell::new(0),
        }))
    }

    /// One more connection to the same server.
    pub(crate) async fn another(&self) -> Result<MultiplexedConnection, TransportError> {
        connect(&self.client, &self.at).await
    }

    pub(crate) fn open_still(&self) -> Result<(), TransportError> {
        if self.closed.get() { Err(TransportError::stopped()) } else { Ok(()) }
    }

    pub(crate) fn lane(&self, place: &Place) -> Result<Lane, TransportError> {
        self.open_still()?;
        Lane::of(place, self.namespace.as_ref())
    }

    pub(crate) fn tends(&self, place: &Place) {
        if !self.places.borrow().contains(place) {
            self.places.borrow_mut().insert(place.clone());
        }
    }

    pub(crate) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, TransportError> {
        let mut connection = self.connection.clone();
        command.query_async(&mut connection).await.map_err(|error| failure(&self.at, error))
    }

    /// Many commands at once; each has its own answer.
    pub(crate) async fn pipe(&self, commands: &Pipeline, count: usize) -> Result<Vec<Value>, TransportError> {
        let mut connection = self.connection.clone();
        let answers = connection.req_packed_commands(commands, 0, count).await;
        let answers = answers.map_err(|error| failure(&self.at, error))?;
        if answers.len() == count { Ok(answers) } else { Err(self.odd()) }
    }

    /// The beginning of a script's call; its own arguments follow.
    pub(crate) fn call(&self, script: Script, lane: &Lane) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        let hash = self.hashes.get(script as usize).map(String::as_str).unwrap_or_default();
        command.arg(hash).arg(lane.keys.len());
        for key in &lane.keys {
            command.arg(key);
        }
        command.arg(&lane.group).arg(lane.kind);
        command
    }

    pub(crate) async fn run(&self, command: &Cmd) -> Result<Value, TransportError> {
        let mut connection = self.connection.clone();
        let mut answer = command.query_async(&mut connection).await;
        if matches!(&answer, Err(error) if error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)) {
            // Somebody flushed the server's scripts; a script that is not there has changed nothing.
            for source in SOURCES {
                self.query::<Value>(redis::cmd("SCRIPT").arg("LOAD").arg(*source)).await?;
            }
            answer = command.query_async(&mut connection).await;
        }
        answer.map_err(|error| failure(&self.at, error))
    }

    /// As [`Link::run`], for a script that answers a text an item.
    pub(crate) async fn answers(&self, command: &Cmd, count: usize) -> Result<Vec<String>, TransportError> {
        let answers: Vec<String> = redis::from_redis_value(self.run(command).await?).map_err(|_| self.odd())?;
        if answers.len() == count { Ok(answers) } else { Err(self.odd()) }
    }

    /// An answer of another form than was asked for: nothing on this connection can be trusted.
    pub(crate) fn odd(&self) -> TransportError {
        TransportError::new(ErrorKind::Connection, format!("{}: an answer of an unexpected form", self.at))
    }
}

async fn connect(client: &Client, at: &str) -> Result<MultiplexedConnection, TransportError> {
    let made = client.get_multiplexed_async_connection_with_config(&patient()).await;
    made.map_err(|error| failure(at, error))
}

/// What the server or the client said, as an error of ours.
pub(crate) fn failure(at: &str, error: RedisError) -> TransportError {
    // Many commands at once fail as one; the first says why.
    let first = error.clone().into_server_errors().and_then(|all| all.first().map(|(_, first)| first.clone()));
    let error = first.map_or(error, RedisError::from);
    let code = error.code().unwrap_or_default();
    let kind = match code {
        "NOGROUP" | "UNBLOCKED" => ErrorKind::NotFound,
        "OOM" | "BUSY" | "LOADING" | "TRYAGAIN" | "MISCONF" | "NOREPLICAS" => ErrorKind::Busy,
        "NOAUTH" | "WRONGPASS" | "NOPERM" | "MOVED" | "CROSSSLOT" | "WRONGTYPE" | "ERR" | "DENIED" => {
            ErrorKind::Refused
        }
        _ if error.kind() == redis::ErrorKind::AuthenticationFailed => ErrorKind::Refused,
        // Also a replica that was promoted or demoted: another connection may find the right one.
        _ => ErrorKind::Connection,
    };
    let what = match (kind, code, error.detail()) {
        (ErrorKind::Connection, "", _) if error.is_connection_refusal() => "nobody answers there".to_owned(),
        (ErrorKind::Connection, "", _) => "the connection failed".to_owned(),
        (_, code, Some(detail)) => format!("{code} {detail}"),
        (_, code, None) => code.to_owned(),
    };
    TransportError::new(kind, format!("{at}: {what}")).caused_by(error)
}

/// An error's text as a script gave it for one item.
pub(crate) fn item(at: &str, text: &str) -> TransportError {
    let busy = ["OOM", "MISCONF", "NOREPLICAS"].iter().any(|code| text.contains(code));
    TransportError::new(if busy { ErrorKind::Busy } else { ErrorKind::Refused }, format!("{at}: {text}"))
}

pub(crate) fn array(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(items) => Some(items),
        Value::Nil => Some(Vec::new()),
        _ => None,
    }
}

/// An array of so many.
pub(crate) fn exactly<const N: usize>(value: Value) -> Option<[Value; N]> {
    array(value)?.try_into().ok()
}

pub(crate) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

pub(crate) fn text(value: Value) -> Option<String> {
    bytes(value).and_then(|bytes| String::from_utf8(bytes).ok())
}

pub(crate) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}
