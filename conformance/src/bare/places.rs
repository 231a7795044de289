//! Names never run into each other, and one that a broker cannot hold is refused when it is declared.

use std::time::Duration;

use postroom_core::{Broker, Declaration, DeclareMode, Envelope, ErrorKind, Name, Place};

use crate::{
    Subject,
    scenario::scenarios,
    support::{Connection, Stop, World, ensure},
};

scenarios! { Operations;
    names_that_look_alike_are_apart [] "queues whose names differ in one sign or in case never share a message";
    kinds_of_place_are_apart [Topics] "a queue, a topic and its groups under one name never share a message";
    derived_names_are_apart [Topics] "a suspects' lane and a group with a joined name never meet another place";
    hostile_names_are_refused [] "a name with a hostile character is refused before anything is declared";
    the_longest_names_work_or_are_refused [] "names at their longest work whole, or are refused when they are declared";
}

/// One message into each, one out of each: its own.
async fn apart<S: Subject>(world: &World<S>, places: &[Place]) -> Result<(), Stop> {
    let connection = world.connect().await?;
    connection.declare(&places.iter().collect::<Vec<_>>()).await?;
    for place in places {
        connection.send(place, Envelope::new(place.to_string())).await?;
    }
    for place in places.iter().filter(|place| place.is_readable()) {
        own(world, &connection, place).await?;
    }
    Ok(())
}

async fn own<S: Subject>(world: &World<S>, connection: &Connection<S::Broker>, place: &Place) -> Result<(), Stop> {
    let reader = connection.reader(place).await?;
    let delivery = reader.one().await?;
    let body = String::from_utf8_lossy(&delivery.envelope.body).into_owned();
    ensure!(body == place.to_string(), "{place} gave the message of {body}");
    reader.ack(&delivery).await?;
    if world.powers.count {
        let counts = connection.counts(place).await?;
        ensure!(counts.waiting.unwrap_or(0) == 0, "{place} had one message, {counts:?}");
    }
    Ok(())
}

async fn names_that_look_alike_are_apart<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let base = world.name("n");
    let names = ["a.b", "a-b", "a_b", "ab", "A.b", "a.b.", "a..b", ".a.b"].map(|odd| format!("{odd}x{base}"));
    let places = names.iter().map(|name| Place::queue(name)).collect::<Result<Vec<_>, _>>()?;
    apart(&world, &places).await
}

async fn kinds_of_place_are_apart<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let name = world.name("same");
    let connection = world.connect().await?;
    let group = Place::group(&name, &name)?;
    let (queue, topic) = (Place::queue(&name)?, Place::topic(&name)?);
    connection.declare(&[&queue, &topic, &group]).await?;
    connection.send_many(&queue, 3).await?;
    connection.send_many(&topic, 2).await?;
    for (place, n) in [(&queue, 3), (&group, 2)] {
        let reader = connection.reader(place).await?;
        let taken = reader.take(n).await?;
        reader.ack_all(&taken).await?;
    }
    Ok(())
}

async fn derived_names_are_apart<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let (x, y) = (world.name("x"), world.name("y"));
    let mut places = vec![
        Place::queue(&x)?,
        Place::group(&x, &y)?,
        Place::group(&y, &x)?,
        Place::group(&format!("{x}.{y}"), "z")?,
        Place::group(&x, &format!("{y}.z"))?,
    ];
    let lane = Place::group(&x, "suspects");
    ensure!(lane.is_err(), "a group was named as a queue's suspects' lane: {lane:?}");
    let lanes: Vec<_> = places.iter().take(3).filter_map(Place::suspects).collect();
    places.extend(lanes);
    apart(&world, &places).await
}

async fn hostile_names_are_refused<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let hostile =
        ["", " ", "a b", "a/b", "a\\b", "a\0b", "a\nb", "é", "🦀", "a*", "a>", "a:b", "a'b", "a--b", "-a", "a-"];
    for name in hostile {
        ensure!(Name::new(name).is_err(), "the name {name:?} was taken");
        ensure!(Place::queue(name).is_err() && Place::group("t", name).is_err(), "the name {name:?} was taken");
    }
    ensure!(Name::new(&"x".repeat(129)).is_err(), "a name of 129 bytes was taken");
    // What the grammar lets through, a broker may still not be able to hold: see the longest names.
    let (connection, queue) = world.with_queue().await?;
    connection.send(&queue, Envelope::new(queue.to_string())).await?;
    own(&world, &connection, &queue).await
}

async fn the_longest_names_work_or_are_refused<S: Subject>(world: World<S>) -> Result<(), Stop> {
    let long = |c: char| {
        let name = world.name("n");
        format!("{name}{}", c.to_string().repeat(128 - name.len()))
    };
    let mut places = vec![Place::queue(&long('a'))?];
    if world.powers.capabilities.topics {
        places.push(Place::group(&long('b'), &long('c'))?);
        places.push(Place::group(&long('b'), &long('d'))?);
    }
    let lanes: Vec<_> = places.iter().filter_map(Place::suspects).collect();
    places.extend(lanes);
    let connection = world.connect().await?;
    let mut held = Vec::new();
    for place in places {
        match connection.broker.declare(&[Declaration::new(place.clone())], DeclareMode::Create).await {
            Ok(()) => held.push(place),
            Err(error) => {
                let kind = error.kind();
                ensure!(matches!(kind, ErrorKind::Config | ErrorKind::Refused), "refused with {error:?}");
            }
        }
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    apart(&world, &held).await
}
