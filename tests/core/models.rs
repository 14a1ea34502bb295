//! Models of everything atomic: the files of `sync`, compiled against loom, which tries every order of their steps.
//!
//! With at most BOUND forced changes of thread (LOOM_MAX_PREEMPTIONS; 2 in a test run, 3 in `make safety`).
#![allow(dead_code, unsafe_code)]

#[path = "../../crates/burtorch-core/src/sync/flag.rs"]
mod flag;
#[path = "../../crates/burtorch-core/src/sync/guided_chunks.rs"]
mod guided_chunks;
#[path = "../../crates/burtorch-core/src/sync/ordered_reduction.rs"]
mod ordered_reduction;
#[path = "../../crates/burtorch-core/src/sync/per_process.rs"]
mod per_process;
#[path = "../../crates/burtorch-core/src/sync/pool.rs"]
mod pool;
#[path = "models/primitives.rs"]
mod primitives;
#[path = "../../crates/burtorch-core/src/sync/try_arc.rs"]
mod try_arc;
#[path = "../../crates/burtorch-core/src/sync/turn_hint.rs"]
mod turn_hint;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use loom::thread;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    let model = std::sync::Arc::new(model);
    // With fewer cores than threads, idle threads sleep at once.
    for n_cores in [1, 4] {
        primitives::CORES.set(n_cores);
        let model = std::sync::Arc::clone(&model);
        builder.check(move || model());
    }
}

/// Cells observed by loom: two simultaneous accesses fail the model.
struct Cells(Vec<UnsafeCell<usize>>);

// SAFETY: loom observes every access and fails the model if two are simultaneous.
unsafe impl Sync for Cells {}
// SAFETY: as above.
unsafe impl Send for Cells {}

impl Cells {
    fn new(n: usize) -> Arc<Self> {
        Arc::new(Cells((0..n).map(|_| UnsafeCell::new(0)).collect()))
    }

    fn add(&self, k: usize, n: usize) {
        // SAFETY: as above.
        self.0[k].with_mut(|cell| unsafe { *cell += n });
    }

    fn read(&self, k: usize) -> usize {
        // SAFETY: as above.
        self.0[k].with(|cell| unsafe { *cell })
    }
}

#[test]
fn a_job_is_done_once_and_seen_by_its_caller() {
    check(|| {
        let pool = pool::Pool::new();
        let cells = Cells::new(3);
        pool.run(2, 3, &|k| cells.add(k, k + 1));
        assert_eq!((0..3).map(|k| cells.read(k)).collect::<Vec<_>>(), [1, 2, 3]);
    });
}

#[test]
fn a_thread_that_wakes_up_late_never_sees_an_old_job() {
    check(|| {
        let pool = pool::Pool::new();
        for round in 1..3 {
            // Created per job: a thread that calls an old task accesses freed memory.
            let cells = Cells::new(2);
            pool.run(2, 2, &|k| cells.add(k, round));
            assert_eq!((cells.read(0), cells.read(1)), (round, round));
        }
    });
}

#[test]
fn two_callers_at_a_time_both_get_their_work_done() {
    check(|| {
        let pool = Arc::new(pool::Pool::new());
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let cells = Cells::new(2);
                pool.run(2, 2, &|k| cells.add(k, 1));
                assert_eq!((cells.read(0), cells.read(1)), (1, 1));
            })
        };
        let cells = Cells::new(2);
        pool.run(2, 2, &|k| cells.add(k, 1));
        assert_eq!((cells.read(0), cells.read(1)), (1, 1));
        other.join().unwrap();
    });
}

#[test]
fn a_flag_excludes_a_second_holder() {
    check(|| {
        let shared = Arc::new((flag::Flag::new(), Cells::new(1), AtomicUsize::new(0)));
        let hold = |shared: &(flag::Flag, Arc<Cells>, AtomicUsize)| {
            if let Some(_raised) = shared.0.raise() {
                shared.1.add(0, 1);
                shared.2.fetch_add(1, Ordering::Relaxed);
            }
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || hold(&shared))
            })
            .collect();
        hold(&shared);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let holders = shared.2.load(Ordering::Relaxed);
        assert!(holders >= 1 && shared.1.read(0) == holders);
    });
}

#[test]
fn a_flag_lets_readers_in_together_and_a_writer_alone() {
    check(|| {
        let shared = Arc::new((flag::Flag::new(), Cells::new(1)));
        let read = |shared: &(flag::Flag, Arc<Cells>)| {
            if let Some(_shared) = shared.0.share() {
                assert!(shared.1.read(0) <= 1);
            }
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || read(&shared))
            })
            .collect();
        if let Some(_alone) = shared.0.raise() {
            shared.1.add(0, 1);
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(shared.0.raise().is_some());
    });
}

#[test]
fn two_threads_of_a_process_get_the_same_and_a_child_its_own() {
    check(|| {
        let shared = Arc::new(per_process::PerProcess::<AtomicUsize>::new(AtomicPtr::new(std::ptr::null_mut())));
        let get = |process, shared: &per_process::PerProcess<AtomicUsize>| {
            let found = shared.get(process, || AtomicUsize::new(process as usize));
            assert_eq!(found.load(Ordering::Relaxed), process as usize);
            std::ptr::from_ref(found) as usize
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || get(1, &shared))
        };
        let here = get(1, &shared);
        assert_eq!(other.join().unwrap(), here);
        assert_ne!(get(2, &shared), here);
    });
}

/// Sums results and their numbers; continues until a result of 0.
fn push(seen: &mut Vec<(usize, usize)>, number: usize, result: &mut usize) -> bool {
    seen.push((number, *result));
    *result != 0
}

/// Buffers for this many early results.
fn room(n: usize) -> ordered_reduction::EarlyResults<usize> {
    ordered_reduction::EarlyResults { spares: vec![7; n], early: Vec::with_capacity(n) }
}

#[test]
fn turns_come_in_the_order_of_numbers() {
    for n_spares in [0, 1] {
        check(move || {
            let turns = Arc::new(ordered_reduction::OrderedReduction::new(Vec::new(), 3, true, room(n_spares), push));
            // Started in order: two threads take numbers from one counter, as the threads of a pool do.
            let next = Arc::new(AtomicUsize::new(3));
            let work = |turns: Arc<ordered_reduction::OrderedReduction<Vec<_>, _>>, next: Arc<AtomicUsize>| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number > 5 {
                        return;
                    }
                    turns.claim(number).hand_over(&mut (2 * number));
                }
            };
            let other = thread::spawn({
                let (turns, next) = (Arc::clone(&turns), Arc::clone(&next));
                move || work(turns, next)
            });
            work(Arc::clone(&turns), next);
            other.join().unwrap();
            let turns = Arc::try_unwrap(turns).unwrap_or_else(|_| panic!("both threads have ended"));
            let (seen, room) = turns.into_parts();
            assert_eq!(seen.unwrap(), [(3, 6), (4, 8), (5, 10)]);
            assert_eq!((room.spares.len(), room.early.len()), (n_spares, 0));
        });
    }
}

#[test]
fn no_task_waits_for_an_abandoned_turn() {
    for n_spares in [0, 1] {
        check(move || {
            let turns = Arc::new(ordered_reduction::OrderedReduction::new(Vec::new(), 0, false, room(n_spares), push));
            let waits = thread::spawn({
                let turns = Arc::clone(&turns);
                move || turns.claim(1).hand_over(&mut 1)
            });
            drop(turns.claim(0));
            waits.join().unwrap();
            let turns = Arc::try_unwrap(turns).unwrap_or_else(|_| panic!("both threads have ended"));
            let (seen, room) = turns.into_parts();
            assert_eq!(seen.unwrap(), []);
            assert_eq!((room.spares.len(), room.early.len()), (n_spares, 0));
        });
    }
}

#[test]
fn a_result_that_ends_the_turns_is_the_last() {
    check(|| {
        let turns = Arc::new(ordered_reduction::OrderedReduction::new(Vec::new(), 0, true, room(1), push));
        let other = thread::spawn({
            let turns = Arc::clone(&turns);
            move || turns.claim(1).hand_over(&mut 1)
        });
        turns.claim(0).hand_over(&mut 0);
        other.join().unwrap();
        let turns = Arc::try_unwrap(turns).unwrap_or_else(|_| panic!("both threads have ended"));
        let (seen, room) = turns.into_parts();
        assert_eq!(seen.unwrap(), [(0, 0)]);
        assert_eq!((room.spares.len(), room.early.len()), (1, 0));
    });
}

#[test]
fn the_last_owner_sees_what_the_others_did_and_frees() {
    check(|| {
        let cells = Cells::new(2);
        let freed = Arc::new(AtomicUsize::new(0));
        struct Content(Arc<Cells>, Arc<AtomicUsize>);
        impl Drop for Content {
            fn drop(&mut self) {
                assert_eq!(self.0.read(0) + self.0.read(1), 1, "what the other did is seen");
                self.1.fetch_add(1, Ordering::Relaxed);
            }
        }
        let Ok(held) = try_arc::TryArc::new(Content(cells, freed.clone())) else { panic!("memory") };
        let other = held.share();
        let thread = thread::spawn(move || {
            other.0.add(1, 1);
            drop(other);
        });
        match held.take() {
            // This is the last owner.
            Ok(content) => content.0.add(0, 0),
            Err(held) => drop(held),
        }
        thread.join().unwrap();
        assert_eq!(freed.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_baton_is_in_one_hand_at_a_time() {
    check(|| {
        let shared = Arc::new((turn_hint::TurnHint::new(), Cells::new(1)));
        let pass = |(hint, cells): &(turn_hint::TurnHint, Arc<Cells>)| {
            if hint.take() {
                cells.add(0, 1);
                hint.give();
            }
        };
        let other = shared.clone();
        let thread = thread::spawn(move || pass(&other));
        pass(&shared);
        thread.join().unwrap();
        let n = if shared.0.take() { shared.1.read(0) } else { unreachable!("nobody has it") };
        assert!((1..=2).contains(&n));
    });
}

#[test]
fn each_number_is_in_one_portion_and_none_is_taken_after_a_stop() {
    check(|| {
        let shared = Arc::new((guided_chunks::GuidedChunks::new(5, 2, 2, 4), Cells::new(5)));
        let work = |(portions, cells): &(guided_chunks::GuidedChunks, Arc<Cells>)| {
            while let Some(portion) = portions.take() {
                assert!((1..=4).contains(&portion.len()));
                portion.for_each(|k| cells.add(k, 1));
            }
        };
        let other = shared.clone();
        let thread = thread::spawn(move || work(&other));
        work(&shared);
        thread.join().unwrap();
        assert_eq!([0, 1, 2, 3, 4].map(|k| shared.1.read(k)), [1; 5]);
        assert!(!shared.0.is_stopped());
    });
    check(|| {
        let portions = Arc::new(guided_chunks::GuidedChunks::new(3, 2, 1, 1));
        let other = portions.clone();
        let thread = thread::spawn(move || {
            _ = portions.take();
            portions.stop();
        });
        while other.take().is_some() {}
        thread.join().unwrap();
        assert!(other.is_stopped() && other.take().is_none());
    });
}
