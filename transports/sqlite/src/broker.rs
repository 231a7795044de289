//! A connection.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use postroom_core::{
    Broker, Capabilities, Declaration, DeclareMode, DeliveryCount, Durability, ErrorKind, Fencing, MessageId, Outgoing,
    Place, Subscription, Tended, TransportError,
};

use crate::{
    claim::GiveBack,
    clock,
    config::{SqliteConfig, Sync},
    error::{self, missing},
    file::File,
    open,
    places::Places,
    publish::{DELAYED, New, Publish},
    source::{Open, SqliteSource},
    upkeep::{self, Upkeep},
};

/// The largest body. SQLite would take 1 GB, but a row lies in memory several times on its way.
pub(crate) const MAX_BODY: usize = 128 * 1024 * 1024;

/// A connection to a file. All connections of a process to one file share its writer.
pub struct Sqlite {
    powers: Powers,
}

/// A connection's powers to count, to browse, and over groups. Apart from [`Sqlite`], because a type that is a broker
/// and a power at once has two methods `count`.
pub struct Powers {
    pub(crate) file: Arc<File>,
    pub(crate) places: Places,
    closed: AtomicBool,
    sources: Mutex<Vec<Weak<Open>>>,
}

impl Powers {
    pub(crate) fn open(&self) -> Result<&File, TransportError> {
        if self.closed.load(Ordering::Acquire) { Err(TransportError::stopped()) } else { Ok(&self.file) }
    }

    fn sources(&self) -> Vec<Arc<Open>> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.drain(..).filter_map(|open| open.upgrade()).collect()
    }

    fn add(&self, open: &Arc<Open>) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.retain(|open| open.strong_count() > 0);
        sources.push(Arc::downgrade(open));
    }

    /// Where each message goes, or why it goes nowhere.
    async fn address(&self, file: &File, now: i64, batch: &[Outgoing]) -> Vec<Result<New, TransportError>> {
        let mut addressed = Vec::with_capacity(batch.len());
        // Most batches go to one place, which is then looked up once.
        let mut last: Option<(&Place, i64)> = None;
        for out in batch {
            let to = match last.filter(|(place, _)| **place == out.to) {
                Some((_, to)) => Ok(to),
                None => self.route(file, out).await,
            };
            addressed.push(to.and_then(|to| {
                last = (!out.require_group).then_some((&out.to, to));
                let size = out.envelope.body.len();
                if size > MAX_BODY {
                    let what = format!("a body of {size} bytes is larger than the {MAX_BODY} that SQLite is given");
                    return Err(TransportError::new(ErrorKind::TooLarge, what));
                }
                let due = out.delay.filter(|delay| !delay.is_zero()).map(|delay| clock::due(now, delay));
                Ok(New::addressed(to, &out.to, due, out.envelope.clone()))
            }));
        }
        addressed
    }

    async fn route(&self, file: &File, out: &Outgoing) -> Result<i64, TransportError> {
        let unroutable = |what: String| TransportError::new(ErrorKind::Unroutable, what);
        let to = self.places.find(file, &out.to).await?;
        let to = to.ok_or_else(|| unroutable(format!("{} was never declared", out.to)))?;
        if out.require_group && matches!(out.to, Place::Topic(_)) {
            let groups = file.ask(async |on| {
                let sql = "SELECT EXISTS (SELECT 1 FROM postroom_place WHERE topic = ?)";
                sqlx::query_scalar::<_, bool>(sql).bind(to).fetch_one(on).await
            });
            if !groups.await? {
                return Err(unroutable(format!("{} has no group", out.to)));
            }
        }
        Ok(to)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Result<Vec<Result<MessageId, TransportError>>, TransportError> {
        let file = self.open()?;
        loop {
            let now = clock::now();
            let mut answers = Vec::with_capacity(batch.len());
            let mut rows = Vec::with_capacity(batch.len());
            for (out, addressed) in batch.iter().zip(self.address(file, now, batch).await) {
                answers.push(addressed.map(|new| {
                    rows.push(new);
                    out.envelope.id.clone()
                }));
            }
            if rows.is_empty() {
                return Ok(answers);
            }
            let publish = Publish::new(now, &rows).map_err(|error| error::translate(&file.path, error))?;
            match file.write(publish).await {
                Ok(()) => return Ok(answers),
                // Nothing was stored. Asked anew, the one that is gone is unroutable, and the others have their places.
                Err(error) if error.kind() == ErrorKind::Unroutable && error.to_string() == error::PLACE_GONE => {
                    self.places.forget();
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl fmt::Debug for Powers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Powers").field("file", &self.file.path).finish_non_exhaustive()
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("file", &self.powers.file.path).finish_non_exhaustive()
    }
}

impl Broker for Sqlite {
    type Config = SqliteConfig;
    type Source = SqliteSource;
    type Count = Powers;
    type Browse = Powers;
    type Groups = Powers;

    async fn connect(config: &SqliteConfig) -> Result<Self, TransportError> {
        let file = File::open(config).await?;
        let places = Places::new(config.namespace.as_ref());
        Ok(Self { powers: Powers { file, places, closed: AtomicBool::new(false), sources: Mutex::default() } })
    }

    fn capabilities(&self) -> Capabilities {
        let file = &self.powers.file;
        let mut can = Capabilities::none("sqlite");
        can.server = Some(format!("SQLite {}", file.server));
        can.delay = true;
        can.lease = true;
        can.topics = true;
        can.atomic_retry = true;
        can.delivery_count = DeliveryCount::Exact;
        can.fencing = Fencing::Refused;
        can.shared = true;
        can.max_body = Some(MAX_BODY);
        can.durability_setting = file.sync.setting().into();
        can.durability = match file.sync {
            Sync::Full => Durability::Power,
            Sync::Normal => Durability::Crash,
        };
        if let Some(kind) = open::network(&file.path) {
            let path = file.path.display();
            can.warnings
                .push(format!("{path} lies on a network file system ({kind}), where SQLite's locks do not hold"));
        }
        can
    }

    async fn declare(&self, what: &[Declaration], how: DeclareMode) -> Result<(), TransportError> {
        let file = self.powers.open()?;
        for Declaration { place, .. } in what {
            match how {
                DeclareMode::Create => self.powers.places.create(file, place).await?,
                DeclareMode::Verify => {
                    self.powers.places.find_anew(file, place).await?.ok_or_else(|| missing(place))?;
                }
            }
        }
        Ok(())
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<MessageId, TransportError>> {
        match self.powers.publish(batch).await {
            Ok(answers) => answers,
            Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn subscribe(&self, to: Subscription) -> Result<SqliteSource, TransportError> {
        let file = self.powers.open()?;
        if !to.place.is_readable() {
            return Err(TransportError::new(ErrorKind::Refused, format!("{} cannot be subscribed to", to.place)));
        }
        let places = &self.powers.places;
        let id = places.find_anew(file, &to.place).await?.ok_or_else(|| missing(&to.place))?;
        let topic = match &to.place {
            Place::Group { topic, .. } => places.find(file, &Place::Topic(topic.clone())).await?,
            _ => None,
        };
        // A close that came meanwhile knows nothing of this source.
        self.powers.open()?;
        let source = SqliteSource::new(self.powers.file.clone(), id, topic, to);
        self.powers.add(&source.open);
        Ok(source)
    }

    async fn tend(&self, max: usize) -> Result<Tended, TransportError> {
        let file = self.powers.open()?;
        let mut tended = Tended::default();
        let mut now = clock::now();
        let mut first = file.ask(upkeep::first).await?;
        let due: BTreeSet<_> = first.iter().filter(|it| it.2 <= now).map(|it| (it.0, it.1)).collect();
        if !due.is_empty() {
            let max = u64::try_from(max.max(1)).unwrap_or(u64::MAX);
            for (_, state, count) in file.write(Upkeep { now, max, due: due.into_iter().collect() }).await? {
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                if state == DELAYED { tended.promoted += count } else { tended.reclaimed += count }
            }
            first = file.ask(upkeep::first).await?;
            now = clock::now();
        }
        tended.next = first.iter().map(|it| clock::until(now, it.2)).min();
        tended.more = tended.next == Some(Duration::ZERO);
        Ok(tended)
    }

    async fn close(&self) -> Result<(), TransportError> {
        self.powers.closed.store(true, Ordering::Release);
        let open = self.powers.sources();
        let sources: Vec<_> =
            open.iter().filter(|open| open.end()).map(|open| (open.place, open.owner.clone())).collect();
        if sources.is_empty() {
            return Ok(());
        }
        // After all that was begun: the writer works in order.
        self.powers.file.write(GiveBack { sources }).await
    }

    fn count(&self) -> Option<&Powers> {
        Some(&self.powers)
    }
    fn browse(&self) -> Option<&Powers> {
        Some(&self.powers)
    }
    fn groups(&self) -> Option<&Powers> {
        Some(&self.powers)
    }
}
