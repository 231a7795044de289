//! Which pools a message visits.

use std::{collections::HashMap, sync::Arc};

use postroom_core::{Outcome, Text, TypeName};

use crate::{
    gate::{Delivery, Ended},
    handler::TypePattern,
    queue::Queue,
};

/// The pools that take one pattern, in order.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) stages: Vec<Stage>,
}

/// One pool of a route; named where the route has several.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) name: Option<Text>,
    pub(crate) queue: Arc<Queue>,
}

/// All routes of one subscription.
#[derive(Debug, Default)]
pub(crate) struct Router {
    exact: HashMap<TypeName, Arc<Route>>,
    /// Longest first.
    prefixes: Vec<(Text, Arc<Route>)>,
}

impl Router {
    pub(crate) fn new(routes: Vec<(TypePattern, Arc<Route>)>) -> Self {
        let mut router = Self::default();
        for (pattern, route) in routes {
            match pattern {
                TypePattern::Exact(name) => {
                    router.exact.insert(name, route);
                }
                TypePattern::Prefix(prefix) => router.prefixes.push((prefix, route)),
            }
        }
        router.prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        router
    }

    fn find(&self, message_type: Option<&TypeName>) -> Option<&Arc<Route>> {
        if let Some(route) = message_type.and_then(|name| self.exact.get(name)) {
            return Some(route);
        }
        let name = message_type.map_or("", |name| name.as_str());
        self.prefixes.iter().find(|(prefix, _)| name.starts_with(&**prefix)).map(|(_, route)| route)
    }

    /// How many deliveries wait for a slot.
    pub(crate) fn queued(&self) -> usize {
        let routes = self.exact.values().chain(self.prefixes.iter().map(|(_, route)| route));
        routes.flat_map(|route| &route.stages).map(|stage| stage.queue.len()).sum()
    }

    /// Hands deliveries to the pools of their types; answers those that no handler takes, ended.
    pub(crate) fn dispatch(&self, deliveries: Vec<Delivery>) -> Vec<Ended> {
        let mut ended = Vec::new();
        let mut batch: Vec<Delivery> = Vec::with_capacity(deliveries.len());
        let mut target: Option<Arc<Queue>> = None;
        for mut delivery in deliveries {
            let message_type = delivery.envelope.message_type.as_ref();
            // Neighbours mostly have the same type: it is looked up once.
            let like = batch.last().filter(|last| last.envelope.message_type.as_ref() == message_type);
            let Some(route) = like.and_then(|last| last.route.as_ref()).or_else(|| self.find(message_type)) else {
                ended.push(delivery.end(Outcome::Unhandled));
                continue;
            };
            delivery.route = Some(route.clone());
            let Some(queue) = next_queue(&mut delivery) else {
                ended.push(delivery.end(Outcome::Done));
                continue;
            };
            // Neighbours mostly go to the same pool: one lock for all of them.
            if !target.as_ref().is_some_and(|target| Arc::ptr_eq(target, queue))
                && let Some(before) = target.replace(queue.clone())
            {
                before.push(batch.drain(..));
            }
            batch.push(delivery);
        }
        if let Some(queue) = target {
            queue.push(batch);
        }
        ended
    }
}

/// The queue of the delivery's current stage, after those that its done-marks name are skipped; `None`: all are done.
pub(crate) fn next_queue(delivery: &mut Delivery) -> Option<&Arc<Queue>> {
    let route = delivery.route.as_ref()?;
    while let Some(stage) = route.stages.get(delivery.stage) {
        let done = match (&stage.name, &delivery.envelope.track) {
            (Some(name), Some(track)) => track.done.contains(name),
            _ => false,
        };
        if !done {
            return Some(&stage.queue);
        }
        delivery.stage += 1;
    }
    None
}
