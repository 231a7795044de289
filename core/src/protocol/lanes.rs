//! Who waits for whom under `key` and `broker` order.

use std::{collections::HashMap, collections::VecDeque, hash::Hash};

/// Lines of waiting deliveries. The first of a line is out; the others wait for it to leave.
#[derive(Clone, Debug)]
pub struct Lanes<L, K> {
    lines: HashMap<L, VecDeque<K>>,
}

impl<L, K> Default for Lanes<L, K> {
    fn default() -> Self {
        Self { lines: HashMap::new() }
    }
}

impl<L: Hash + Eq, K: Copy + PartialEq> Lanes<L, K> {
    /// Joins a line; answers whether it is first and may go at once.
    pub fn join(&mut self, line: L, key: K) -> bool {
        let waiting = self.lines.entry(line).or_default();
        waiting.push_back(key);
        waiting.len() == 1
    }

    /// Leaves a line from any place in it; answers who may go now, where the first has left.
    pub fn leave(&mut self, line: &L, key: K) -> Option<K> {
        let waiting = self.lines.get_mut(line)?;
        let was_first = waiting.front() == Some(&key);
        waiting.retain(|other| *other != key);
        let next = waiting.front().copied();
        if next.is_none() {
            self.lines.remove(line);
        }
        if was_first { next } else { None }
    }

    /// Who waits behind one in its line, in order.
    pub fn behind(&self, line: &L, key: K) -> impl Iterator<Item = K> {
        let waiting = self.lines.get(line).into_iter().flatten().copied();
        waiting.skip_while(move |other| *other != key).skip(1)
    }

    /// Whether nobody is in any line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_in_order_and_no_line_is_left_behind() {
        let mut lanes = Lanes::default();
        assert!(lanes.join("a", 1));
        assert!(!lanes.join("a", 2));
        assert!(!lanes.join("a", 3));
        assert!(lanes.join("b", 4));
        assert_eq!(lanes.behind(&"a", 1).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(lanes.behind(&"a", 3).next(), None);
        assert_eq!(lanes.behind(&"c", 1).next(), None);
        assert_eq!(lanes.leave(&"a", 2), None);
        assert_eq!(lanes.leave(&"a", 1), Some(3));
        assert_eq!(lanes.leave(&"a", 1), None);
        assert_eq!(lanes.leave(&"a", 3), None);
        assert_eq!(lanes.leave(&"b", 4), None);
        assert!(lanes.is_empty());
    }
}
