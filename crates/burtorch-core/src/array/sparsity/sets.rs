//! Sets of variables, each with a number; set 0 is empty.
//!
//! Promises: members are ascending; the union of two sets is computed once. Does not know values.

use std::collections::HashMap;

use crate::error::Result;
use crate::interrupt::Work;

/// Members of all sets together; beyond, patterns are full.
const MOST: usize = 1 << 26;

pub(super) struct Sets {
    starts: Vec<usize>,
    members: Vec<u32>,
    unions: HashMap<(u32, u32), u32>,
    work: Work,
}

impl Sets {
    /// The empty set, then a set for each of `n` variables.
    pub(super) fn new(n: usize) -> Self {
        let starts = [0].into_iter().chain(0..=n).collect();
        Sets { starts, members: (0..n as u32).collect(), unions: HashMap::new(), work: Work::default() }
    }

    pub(super) fn members(&self, set: u32) -> &[u32] {
        &self.members[self.starts[set as usize]..self.starts[set as usize + 1]]
    }

    /// Whether there are too many, and unions are no longer computed.
    pub(super) fn is_full(&self) -> bool {
        self.members.len() > MOST
    }

    pub(super) fn work(&mut self, n: usize) -> Result<()> {
        self.work.add(n)
    }

    fn added(&mut self, members: &[u32]) -> u32 {
        self.members.extend(members);
        self.starts.push(self.members.len());
        self.starts.len() as u32 - 2
    }

    pub(super) fn union(&mut self, a: u32, b: u32) -> Result<u32> {
        if a == b || b == 0 || self.is_full() {
            return Ok(a);
        }
        if a == 0 {
            return Ok(b);
        }
        let key = (a.min(b), a.max(b));
        if let Some(&known) = self.unions.get(&key) {
            return Ok(known);
        }
        let (x, y) = (self.members(a), self.members(b));
        let mut all = Vec::with_capacity(x.len() + y.len());
        let (mut i, mut j) = (0, 0);
        while i < x.len() && j < y.len() {
            let (p, q) = (x[i], y[j]);
            all.push(p.min(q));
            i += usize::from(p <= q);
            j += usize::from(q <= p);
        }
        all.extend(&x[i..]);
        all.extend(&y[j..]);
        let lengths = [x.len(), y.len()];
        self.work(16 + all.len())?;
        let set = match all.len() {
            n if n == lengths[0] => a,
            n if n == lengths[1] => b,
            _ => self.added(&all),
        };
        self.unions.insert(key, set);
        Ok(set)
    }

    /// The union of any number of sets.
    pub(super) fn union_of(&mut self, mut sets: Vec<u32>) -> Result<u32> {
        self.work(sets.len())?;
        sets.sort_unstable();
        sets.dedup();
        match sets[..] {
            [] => Ok(0),
            [only] => Ok(only),
            [a, b] => self.union(a, b),
            _ if self.is_full() => Ok(0),
            _ => {
                let mut all: Vec<u32> = sets.iter().flat_map(|&set| self.members(set)).copied().collect();
                self.work(16 * all.len())?;
                all.sort_unstable();
                all.dedup();
                let same = sets.iter().find(|&&set| self.members(set).len() == all.len());
                Ok(same.copied().unwrap_or_else(|| self.added(&all)))
            }
        }
    }
}
