use std::{path::Path, time::Duration};

use postroom_core::{
    Broker, Declaration, DeclareMode, Envelope, Incoming, MessageId, Outgoing, Place, Settled, Settlement, Source,
    Subscription, TransportError,
};
use postroom_sqlite::{Sqlite, SqliteConfig, SqliteSource, Sync, Token};
use sqlx::{ConnectOptions, SqliteConnection, sqlite::SqliteConnectOptions};

pub(crate) fn normal(path: &Path) -> SqliteConfig {
    SqliteConfig::new(path).sync(Sync::Normal)
}

pub(crate) fn queue(name: &str) -> Place {
    Place::queue(name).unwrap()
}

/// A connection with a declared queue `q`.
pub(crate) async fn open(config: &SqliteConfig) -> Sqlite {
    let broker = Sqlite::connect(config).await.unwrap();
    declare(&broker, &queue("q")).await;
    broker
}

pub(crate) async fn declare(broker: &Sqlite, place: &Place) {
    broker.declare(&[Declaration::new(place.clone())], DeclareMode::Create).await.unwrap();
}

pub(crate) async fn send(broker: &Sqlite, to: &Place, body: &str) -> Result<MessageId, TransportError> {
    broker.publish(&[Outgoing::new(to.clone(), Envelope::new(body.to_owned()))]).await.remove(0)
}

pub(crate) async fn read(broker: &Sqlite, place: &Place) -> SqliteSource {
    broker.subscribe(Subscription::new(place.clone(), "test", Duration::from_secs(60))).await.unwrap()
}

pub(crate) async fn one(source: &SqliteSource) -> Incoming<Token> {
    loop {
        if let Some(one) = source.pull(1).await.unwrap().pop() {
            return one;
        }
    }
}

pub(crate) async fn settle(source: &SqliteSource, token: &Token, how: Settlement) -> Settled {
    source.settle(&[(token, how)]).await.remove(0).unwrap()
}

/// Another program's connection.
pub(crate) async fn other(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await.unwrap()
}

pub(crate) async fn run(on: &mut SqliteConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(on).await.unwrap();
}
