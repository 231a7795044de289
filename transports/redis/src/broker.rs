//! A connection.

use std::{collections::BTreeMap, fmt, rc::Rc, time::Duration};

use postroom_core::{
    Broker, Capabilities, Declaration, DeclareMode, DeliveryCount, Durability, ErrorKind, Fencing, MessageId, Outgoing,
    Place, Subscription, Tended, TransportError,
};
use redis::Value;

use crate::{
    config::RedisConfig,
    link::{Link, Script, array, exactly, number, text},
    source::RedisSource,
};

/// The oldest server: it has exact lags, and clears claimed entries without a body.
const OLDEST: (u32, u32) = (7, 0);

/// A connection to a server.
pub struct Redis {
    pub(crate) powers: Powers,
    can: Capabilities,
    max_body: usize,
}

/// A connection's powers to count, to browse, and over groups.
pub struct Powers {
    pub(crate) link: Rc<Link>,
}

impl fmt::Debug for Powers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Powers").field("at", &self.link.at).finish_non_exhaustive()
    }
}
impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("at", &self.powers.link.at).finish_non_exhaustive()
    }
}

/// A delay for the server: whole milliseconds, rounded up, so that nothing is early.
pub(crate) fn millis(delay: Duration) -> u64 {
    let whole = delay.as_nanos().div_ceil(1_000_000);
    // Scores are exact up to 2^53.
    u64::try_from(whole).unwrap_or(u64::MAX).min(1 << 52)
}

pub(crate) fn missing(place: &Place) -> TransportError {
    TransportError::new(ErrorKind::NotFound, format!("{place} does not exist"))
}

/// Entries that were in flight and whose bodies somebody trimmed or deleted: they are gone, which is said once.
pub(crate) fn warn_gone(place: &Place, gone: Value) {
    for id in array(gone).unwrap_or_default().into_iter().filter_map(text) {
        tracing::warn!(%place, %id, "a delivery's body was trimmed or deleted on the server; the message is lost");
    }
}

impl Broker for Redis {
    type Config = RedisConfig;
    type Source = RedisSource;
    type Count = Powers;
    type Browse = Powers;
    type Groups = Powers;

    async fn connect(config: &RedisConfig) -> Result<Self, TransportError> {
        let link = Link::open(config).await?;
        let can = capabilities(&link).await?;
        let max_body = can.max_body.unwrap_or(usize::MAX);
        Ok(Self { powers: Powers { link }, can, max_body })
    }

    fn capabilities(&self) -> Capabilities {
        self.can.clone()
    }

    async fn declare(&self, what: &[Declaration], how: DeclareMode) -> Result<(), TransportError> {
        let link = &self.powers.link;
        link.open_still()?;
        for Declaration { place, .. } in what {
            let mut call = link.call(Script::Declare, &link.lane(place)?);
            call.arg(if how == DeclareMode::Create { "create" } else { "verify" });
            match text(link.run(&call).await?).as_deref() {
                Some("D") => link.tends(place),
                Some("N") => return Err(missing(place)),
                Some(other) => {
                    let refused = format!("{place}: the key's type is wanted to be stream, found is {other}");
                    return Err(TransportError::new(ErrorKind::Refused, refused));
                }
                None => return Err(link.odd()),
            }
        }
        Ok(())
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<MessageId, TransportError>> {
        crate::publish::publish(&self.powers.link, self.max_body, batch).await
    }

    async fn subscribe(&self, to: Subscription) -> Result<RedisSource, TransportError> {
        self.powers.link.open_still()?;
        if !to.place.is_readable() {
            return Err(TransportError::new(ErrorKind::Refused, format!("{} cannot be subscribed to", to.place)));
        }
        RedisSource::open(&self.powers.link, to).await
    }

    async fn tend(&self, max: usize) -> Result<Tended, TransportError> {
        let link = &self.powers.link;
        link.open_still()?;
        let mut places = link.places.borrow().clone();
        let topics: Vec<Place> = places
            .iter()
            .filter(|place| matches!(place, Place::Topic(_) | Place::Group { .. }))
            .map(|place| Place::Topic(place.name().clone()))
            .collect();
        places.retain(|place| place.is_readable());
        let mut tended = Tended::default();
        let mut left = max.max(1);
        let mut trimmed = None;
        for topic in topics {
            if trimmed.as_ref() == Some(&topic) {
                continue;
            }
            let mut trim = link.call(Script::Trim, &link.lane(&topic)?);
            link.run(trim.arg(max.max(1_000))).await?;
            for group in self.powers.names(topic.name()).await? {
                places.insert(Place::Group { topic: topic.name().clone(), group });
            }
            trimmed = Some(topic);
        }
        for place in places {
            let mut call = link.call(Script::Tend, &link.lane(&place)?);
            let answer = link.run(call.arg(left)).await?;
            let Some([promoted, reclaimed, more, due, gone]) = exactly::<5>(answer) else {
                return Err(link.odd());
            };
            warn_gone(&place, gone);
            let count = |value: &Value| number(value).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            let (promoted, reclaimed) = (count(&promoted), count(&reclaimed));
            left = left.saturating_sub(promoted + reclaimed);
            tended.promoted += promoted;
            tended.reclaimed += reclaimed;
            tended.more |= number(&more) == Some(1);
            let due = number(&due).and_then(|due| u64::try_from(due).ok()).map(Duration::from_millis);
            tended.next = tended.next.into_iter().chain(due).min();
            if left == 0 {
                tended.more = true;
                break;
            }
        }
        Ok(tended)
    }

    async fn close(&self) -> Result<(), TransportError> {
        let link = &self.powers.link;
        if link.closed.replace(true) {
            return Ok(());
        }
        let sources: Vec<_> = link.sources.take().iter().filter_map(std::rc::Weak::upgrade).collect();
        let mut first = Ok(());
        for source in sources {
            first = first.and(source.close().await);
        }
        first
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

/// A field of `INFO`'s text.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

async fn capabilities(link: &Link) -> Result<Capabilities, TransportError> {
    let info: String = link.query(redis::cmd("INFO").arg("everything")).await?;
    let version = field(&info, "redis_version").unwrap_or_default().to_owned();
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < OLDEST {
        let refused = format!("{}: the server's version is {version}; 7.0 or later is needed", link.at);
        return Err(TransportError::new(ErrorKind::Refused, refused));
    }
    // Hosted servers hide their settings: what is not known is said, not guessed.
    let mut ask = redis::cmd("CONFIG");
    ask.arg("GET").arg("appendfsync").arg("save").arg("proto-max-bulk-len");
    let settings: BTreeMap<String, String> = link.query(&ask).await.unwrap_or_default();
    let mut can = Capabilities::none("redis");
    can.server = Some(version);
    can.delay = true;
    can.lease = true;
    can.topics = true;
    can.atomic_retry = true;
    can.shared = true;
    can.delivery_count = DeliveryCount::Exact;
    can.fencing = Fencing::Refused;
    can.max_body = Some(settings.get("proto-max-bulk-len").and_then(|n| n.parse().ok()).unwrap_or(512 << 20));
    let fsync = settings.get("appendfsync").map(String::as_str);
    if field(&info, "aof_enabled") == Some("1") {
        can.durability = if fsync == Some("always") { Durability::Power } else { Durability::Crash };
        can.durability_setting = format!("appendonly=yes appendfsync={}", fsync.unwrap_or("unknown"));
        if fsync != Some("always") {
            can.warnings.push(
                "a power cut loses the last second of confirmed messages, or more; appendfsync=always keeps them"
                    .into(),
            );
        }
    } else {
        let save = settings.get("save").map_or("unknown", String::as_str);
        can.durability_setting = format!("appendonly=no save=\"{save}\"");
        can.warnings
            .push("a crash of the server loses what is newer than its last snapshot; set appendonly=yes".into());
    }
    let policy = field(&info, "maxmemory_policy").unwrap_or("noeviction");
    if policy != "noeviction" {
        can.warnings.push(format!("maxmemory-policy={policy} lets the server evict messages; set noeviction"));
    }
    if field(&info, "cluster_enabled") == Some("1") {
        can.warnings.push("the server is a cluster's: places on other nodes cannot be reached yet".into());
    }
    Ok(can)
}
