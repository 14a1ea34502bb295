//! Reuse of slots: if only results are needed, a slot holds the values of several nodes, one after another.
//!
//! Promises: inputs and constants keep their slots; results and operands of guards are kept to the end; a node's slot is not
//! reused before its last use. Knows programs, not how they run.

use super::node::Program;

/// The memory slot of each slot of a program, and the number of memory slots.
pub(super) fn slots(program: &Program) -> (Vec<u32>, usize) {
    let first = program.first_node() as usize;
    let n_nodes = program.nodes().len();
    // The last node that reads each slot; slots that are kept are read after all nodes.
    let mut last = vec![0_usize; program.n_slots()];
    for (k, &node) in program.nodes().iter().enumerate() {
        program.for_each_operand(node, |x| last[x as usize] = k);
    }
    let kept = program.outputs().iter().copied().chain(program.guards().iter().flat_map(|g| [g.a, g.b]));
    kept.for_each(|x| last[x as usize] = n_nodes);
    let mut shared: Vec<u32> = (0..program.n_slots() as u32).collect();
    let (mut free, mut n) = (Vec::new(), first as u32);
    for (k, &node) in program.nodes().iter().enumerate() {
        program.for_each_operand(node, |x| {
            // A repeated operand is released once.
            if last[x as usize] == k && x as usize >= first {
                free.push(shared[x as usize]);
                last[x as usize] = usize::MAX;
            }
        });
        shared[first + k] = free.pop().unwrap_or_else(|| {
            n += 1;
            n - 1
        });
    }
    (shared, n as usize)
}
