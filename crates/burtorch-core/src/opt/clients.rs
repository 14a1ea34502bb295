//! Clients: a partition of the samples, and the memory in which each computes and compresses.
//!
//! f is the mean over clients of the means of their samples. Promises: clients compute at the same time, and their messages are
//! added by the fixed tree over their numbers, so that neither the number of threads nor that of processes changes a bit.
//! Does not know methods.

use std::ops::Range;

use super::delays::Network;
use super::exchange::{Exchange, read};
use super::kept::Kept;
use super::method::{Cost, Env};
use super::parts::{bad, check, weights};
use super::terms::Samples;
use super::tree::{TreeSum, subtrees};
use super::worker::{Room, Sends, Who, Worker};
use crate::compress::{Client, Compressor, Message};
use crate::draw::{Draw, Purpose};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::kernels;
use crate::memory;
use crate::scalar::Float;
use crate::sync::{self, Mutex};

/// The division of samples among clients, and their compressor.
pub struct Clients {
    blocks: Vec<Mutex<Block>>,
    n: usize,
    here: Range<usize>,
    compressor: Compressor,
    d: usize,
    weights: Option<Vec<f64>>,
    exchange: Option<Box<dyn Exchange>>,
    network: Option<Network>,
    /// Bits that the server sends to each client per round, if they are not full numbers.
    down: Option<f64>,
    own: TreeSum,
    total: TreeSum,
    payload: Vec<f64>,
    received: Vec<f64>,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Clients(n={}, here={:?}, {:?})", self.n, self.here, self.compressor)
    }
}

/// Clients processed in sequence: a subtree.
#[derive(Debug, Default)]
struct Block {
    first: usize,
    workers: Vec<Worker>,
    room: Room,
    sum: TreeSum,
    time: f64,
    failed: Option<Error>,
}

/// Modifies the message of a client.
pub(super) type Rounds<'a> = &'a (dyn Fn(Who, &mut Message<f64>) -> Result<()> + Sync);

const WHAT: &str = "clients";
/// Bits of an uncompressed number.
pub(super) const NUMBER: f64 = 64.0;
/// Values after a sum: bits, oracle calls, bytes, clients.
const COUNTS: usize = 4;

impl Clients {
    /// The samples of each client: each sample belongs to one.
    pub fn new(parts: Vec<Vec<u32>>, n_samples: usize, d: usize, compressor: Compressor) -> Result<Self> {
        let n = parts.len();
        Self::of_process(parts, 0..n, n_samples, d, compressor)
    }

    /// Only the clients in the range `here` are processed here: it needs an [`Exchange`].
    pub fn of_process(
        mut parts: Vec<Vec<u32>>,
        here: Range<usize>,
        n_samples: usize,
        d: usize,
        compressor: Compressor,
    ) -> Result<Self> {
        check(&parts, n_samples)?;
        let n = parts.len();
        if here.end > n || here.start > here.end {
            return Err(bad(format!("a process with the clients {} to {}", here.start, here.end)));
        }
        let weights = weights(&parts, n_samples)?;
        // About 64 blocks: enough for the threads of a machine, few enough to have memory for each.
        let level = (n / 64).checked_ilog2().unwrap_or(0).min(10);
        let mut blocks = Vec::new();
        for range in subtrees(here.clone(), n, level) {
            let mut block = Block { first: range.start, ..Block::default() };
            memory::reserve_in(&mut block.workers, range.len(), WHAT)?;
            let own = parts[range].iter_mut().map(std::mem::take);
            block.workers.extend(own.map(|samples| Worker { samples, ..Worker::default() }));
            memory::reserve_in(&mut blocks, 1, WHAT)?;
            blocks.push(Mutex::new(block));
        }
        Ok(Clients {
            blocks,
            n,
            here,
            compressor,
            d,
            weights,
            exchange: None,
            network: None,
            down: None,
            own: TreeSum::default(),
            total: TreeSum::default(),
            payload: Vec::new(),
            received: Vec::new(),
        })
    }

    /// Sets the exchange that provides the messages of other processes' clients.
    pub fn set_exchange(&mut self, exchange: Box<dyn Exchange>) {
        self.exchange = Some(exchange);
    }

    /// Says how long clients take, on a virtual clock.
    pub fn set_network(&mut self, network: Network) {
        self.network = Some(network);
    }

    /// Sets the number of bits that the server sends to each client per round, if it does not send full numbers.
    pub(super) fn set_down(&mut self, bits: f64) {
        self.down = Some(bits);
    }

    /// How many, of all processes.
    pub fn n(&self) -> usize {
        self.n
    }

    /// How many are at work in this process.
    pub fn n_here(&self) -> usize {
        self.here.len()
    }

    /// The weight of each sample in f, unless all are equal.
    pub fn weights(&self) -> Option<Vec<f64>> {
        self.weights.clone()
    }

    /// Runs `work`, which returns its number of oracle calls, on the threads of `env` for every client, or for those in
    /// the sorted list; sums the messages.
    pub(super) fn each(
        &mut self,
        env: &Env<'_>,
        part: Option<&[u32]>,
        sends: Sends,
        work: &(dyn Fn(Who, &mut Worker, &mut Room) -> Result<u64> + Sync),
    ) -> Result<Cost> {
        let (blocks, network, here) = (&self.blocks, self.network.as_ref(), self.here.start);
        let numbers = if let Sends::Vectors(k) = sends { k as usize * self.d } else { self.d };
        let plain = numbers as f64 * NUMBER;
        let bits_down = self.down.unwrap_or(plain);
        let done = |block: &mut Block| {
            block.sum.begin(0..usize::MAX);
            block.time = 0.0;
            for at in 0..block.workers.len() {
                let (k, worker) = (block.first + at, &mut block.workers[at]);
                worker.is_here = part.is_none_or(|part| part.binary_search(&(k as u32)).is_ok());
                if !worker.is_here {
                    continue;
                }
                if interrupt::is_over() {
                    return Err(Error::Interrupted);
                }
                let calls = work(Who { k, here: k - here }, worker, &mut block.room)?;
                let leaf = block.sum.push(k, numbers + COUNTS)?;
                let (sum, counts) = leaf.split_at_mut(numbers);
                let (bits, bytes) = match sends {
                    Sends::Message => {
                        worker.message.add_to(sum, 1.0)?;
                        (worker.message.bits(), worker.message.n_bytes() as f64)
                    }
                    Sends::Unsent => {
                        sum.copy_from_slice(&block.room.g);
                        (0.0, 0.0)
                    }
                    Sends::Numbers | Sends::Vectors(_) => {
                        sum.copy_from_slice(&block.room.g);
                        (plain, plain / 8.0)
                    }
                };
                counts.copy_from_slice(&[bits, calls as f64, bytes, 1.0]);
                if let Some(network) = network {
                    let exchanged = (sends != Sends::Unsent).then_some(bits + bits_down);
                    block.time = block.time.max(network.time(env.seed, env.round, k, calls, exchanged));
                }
            }
            block.sum.end();
            Ok(())
        };
        sync::run(env.threads, blocks.len(), &|at| {
            let mut block = blocks[at].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            block.failed = done(&mut block).err();
        });
        self.total(sends != Sends::Unsent, numbers)
    }

    /// Sums over blocks and processes; returns the cost.
    fn total(&mut self, is_exchange: bool, numbers: usize) -> Result<Cost> {
        let (mut time, mut failed) = (0.0f64, None);
        let end = if self.here.end == self.n { usize::MAX } else { self.here.end };
        self.own.begin(self.here.start..end);
        for block in &mut self.blocks {
            let block = block_of(block);
            time = time.max(block.time);
            failed = failed.or(block.failed.take());
        }
        if let Some(error) = failed {
            if let Some(exchange) = &self.exchange {
                // Unblocks the other processes; their errors are ignored because this one is the cause.
                let _ = exchange.gather(&[], &mut self.received);
            }
            return Err(error);
        }
        for block in &mut self.blocks {
            for (client, sum) in block_of(block).sum.roots() {
                self.own.push(client, sum.len())?.copy_from_slice(sum);
            }
        }
        self.own.end();
        if let Some(exchange) = &self.exchange {
            self.payload.clear();
            self.payload.extend([self.own.roots().len() as f64, time]);
            for (client, sum) in self.own.roots() {
                self.payload.push(client as f64);
                self.payload.extend_from_slice(sum);
            }
            exchange.gather(&self.payload, &mut self.received)?;
            time = time.max(read(&self.received, numbers + COUNTS, &mut self.total)?);
        } else {
            std::mem::swap(&mut self.own, &mut self.total);
        }
        let found = self.total.roots().next().map_or([0.0; COUNTS], |(_, sum)| {
            let counts = &sum[sum.len() - COUNTS..];
            [counts[0], counts[1], counts[2], counts[3]]
        });
        let [bits_up, calls, bytes, n] = found;
        let bits_down = if is_exchange { n * self.down.unwrap_or(numbers as f64 * NUMBER) } else { 0.0 };
        let rounds = is_exchange.into();
        Ok(Cost { oracle_calls: calls as u64, bits_up, bits_down, wire_bytes: bytes as u64, rounds, time })
    }

    /// All clients of this process, in order.
    pub(super) fn workers(&mut self) -> impl Iterator<Item = &mut Worker> {
        self.blocks.iter_mut().flat_map(|block| &mut block_of(block).workers)
    }

    /// The clients of this process in the last round, by their index in it, and their messages.
    pub(super) fn sent(&mut self) -> impl Iterator<Item = (usize, &Message<f64>)> {
        let here = self.workers().enumerate().filter(|(_, worker)| worker.is_here);
        here.map(|(here, worker)| (here, &worker.message))
    }

    /// Every client, or those in the sorted list, computes its gradient at `x`, minus that at `minus` and minus its row
    /// of `shifts`, and compresses it.
    pub(super) fn send(
        &mut self,
        env: &Env<'_>,
        part: Option<&[u32]>,
        x: &[f64],
        minus: Option<&[f64]>,
        shifts: Option<&Kept<f64>>,
    ) -> Result<Cost> {
        self.compress(env, part, None, &|who, worker, room| {
            let calls = room.grad(env, x, minus, Samples::mean(&worker.samples))?;
            if let Some(shifts) = shifts {
                shifts.read(who.here, |own| room.g.iter_mut().zip(own).for_each(|(g, h)| *g -= h));
                shifts.make(who.here)?;
            }
            Ok(calls)
        })
    }

    /// Every client, or those in the sorted list, compresses `Room::g` as computed by `work`, and modifies its message
    /// by `rounds`.
    pub(super) fn compress(
        &mut self,
        env: &Env<'_>,
        part: Option<&[u32]>,
        rounds: Option<Rounds<'_>>,
        work: &(dyn Fn(Who, &mut Worker, &mut Room) -> Result<u64> + Sync),
    ) -> Result<Cost> {
        let (compressor, n) = (self.compressor, self.n);
        if env.choices.compression.is_some_and(|given| given.len() != n) {
            let expected = format!("for each of the {n} clients");
            return Err(Error::BadArgument { what: "given draws of compressors", expected, found: "others".into() });
        }
        self.each(env, part, Sends::Message, &|who, worker, room| {
            let calls = work(who, worker, room)?;
            if !kernels::all_finite(&room.g) {
                return Err(Error::Diverged { round: env.round + 1 });
            }
            let mut draw = match env.choices.compression {
                Some(given) => Draw::of(&given[who.k])?,
                None => Draw::new(env.seed, env.round, who.k as u64, Purpose::Compression),
            };
            let message = &mut worker.message;
            message.swap_work(&mut room.chooser);
            let done = compressor.compress(&room.g, &mut draw, Client { index: who.k, n }, message);
            message.swap_work(&mut room.chooser);
            done?;
            rounds.map_or(Ok(calls), |rounds| rounds(who, message).map(|()| calls))
        })
    }

    /// Sets `out` to the mean of the clients' gradients at `x`.
    pub(super) fn mean_grad(&mut self, env: &Env<'_>, x: &[f64], out: &mut [f64]) -> Result<Cost> {
        self.mean_of(env, x, out, &|_, _| Ok(()))
    }

    /// The same for the results of `keep` on the gradients.
    fn mean_of(
        &mut self,
        env: &Env<'_>,
        x: &[f64],
        out: &mut [f64],
        keep: &(dyn Fn(Who, &mut [f64]) -> Result<()> + Sync),
    ) -> Result<Cost> {
        let cost = self.each(env, None, Sends::Numbers, &|who, worker, room| {
            let calls = room.grad(env, x, None, Samples::mean(&worker.samples))?;
            keep(who, &mut room.g)?;
            Ok(calls)
        })?;
        out.fill(0.0);
        self.add_sum(0, 1.0 / self.n as f64, out);
        Ok(cost)
    }

    /// The initial vectors of clients: their gradients at `x` if requested, otherwise 0; sets `mean` to their mean.
    pub(super) fn start<T: Float>(
        &mut self,
        env: &Env<'_>,
        x: &[f64],
        from_gradient: bool,
        mean: &mut [f64],
    ) -> Result<(Kept<T>, Cost)> {
        mean.fill(0.0);
        let kept = Kept::new(self.n_here(), mean)?;
        if !from_gradient {
            return Ok((kept, Cost::default()));
        }
        let cost = self.mean_of(env, x, mean, &|who, g| kept.put(who.here, g))?;
        Ok((kept, cost))
    }

    /// Computes every client's gradient at `x`, and leaves it with the client.
    pub(super) fn own_grads(&mut self, env: &Env<'_>, x: &[f64]) -> Result<(Kept<f64>, Cost)> {
        let kept = Kept::new(self.n_here(), x)?;
        let cost = self.each(env, None, Sends::Unsent, &|who, worker, room| {
            let calls = room.grad(env, x, None, Samples::mean(&worker.samples))?;
            kept.put(who.here, &mut room.g).map(|()| calls)
        })?;
        Ok((kept, cost))
    }

    /// Whether clients send full numbers, which may be rounded.
    pub(super) fn send_numbers(&self) -> bool {
        self.compressor.sends_numbers()
    }

    /// Adds `scale` times the sum of the vectors with this index to `out` (0 unless clients send several).
    pub(super) fn add_sum(&self, vector: usize, scale: f64, out: &mut [f64]) {
        if let Some((_, sum)) = self.total.roots().next() {
            out.iter_mut().zip(&sum[vector * self.d..]).for_each(|(out, s)| *out += scale * s);
        }
    }
}

fn block_of(block: &mut Mutex<Block>) -> &mut Block {
    block.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
}
