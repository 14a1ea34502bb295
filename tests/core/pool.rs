//! Threads that share tasks: every task once, panics handed on, callers side by side.

use std::sync::atomic::{AtomicUsize, Ordering};

use burtorch_core::sync::{Flag, Pool, caller, run};

fn counts(n_threads: usize, n_tasks: usize) -> Vec<usize> {
    let counts: Vec<_> = (0..n_tasks).map(|_| AtomicUsize::new(0)).collect();
    run(n_threads, n_tasks, &|k| {
        counts[k].fetch_add(1, Ordering::Relaxed);
    });
    counts.into_iter().map(AtomicUsize::into_inner).collect()
}

#[test]
fn every_task_is_called_once() {
    for n_threads in [0, 1, 2, 3, 8, 64] {
        for n_tasks in [0, 1, 2, 3, 7, 64, 1000] {
            assert_eq!(counts(n_threads, n_tasks), vec![1; n_tasks], "{n_threads} threads");
        }
    }
}

#[test]
fn jobs_follow_one_another_without_loss() {
    let sum = AtomicUsize::new(0);
    for _ in 0..20_000 {
        run(2, 4, &|k| {
            sum.fetch_add(k, Ordering::Relaxed);
        });
    }
    assert_eq!(sum.into_inner(), 20_000 * 6);
}

#[test]
fn sixty_four_callers_get_their_work_done() {
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(counts(8, 16), vec![1; 16]);
                }
            });
        }
    });
}

#[test]
fn a_task_may_have_tasks_of_its_own() {
    let sum = AtomicUsize::new(0);
    run(4, 4, &|_| {
        run(4, 4, &|k| {
            sum.fetch_add(k, Ordering::Relaxed);
        });
    });
    assert_eq!(sum.into_inner(), 24);
}

#[test]
fn tasks_know_for_which_thread_they_work() {
    let me = || std::thread::current().id();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mine = me();
                for _ in 0..200 {
                    run(4, 8, &|_| {
                        assert_eq!(caller(), mine);
                        run(2, 2, &|_| assert_eq!(caller(), mine));
                    });
                    assert_eq!(caller(), mine);
                }
            });
        }
    });
    let panic = std::panic::catch_unwind(|| run(2, 4, &|_| panic!("on purpose")));
    assert!(panic.is_err());
    assert_eq!(caller(), me());
}

#[test]
fn a_panic_is_handed_on_and_the_pool_works_on() {
    let pool = Pool::new();
    for who in 0..4 {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.run(3, 4, &|k| assert!(k != who, "task {k} fails"));
        }));
        let message = caught.unwrap_err();
        let message = message.downcast_ref::<String>().unwrap();
        assert!(message.contains(&format!("task {who} fails")), "{message}");
        let done = AtomicUsize::new(0);
        pool.run(3, 5, &|_| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), 5);
    }
}

#[test]
fn a_flag_goes_down_with_its_guard() {
    let flag = Flag::new();
    let raised = flag.raise();
    assert!(raised.is_some() && flag.raise().is_none() && flag.is_up());
    drop(raised);
    assert!(flag.raise().is_some());
}
