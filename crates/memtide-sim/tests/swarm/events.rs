//! What may happen to memory between accesses: mappings are replaced, files written, pages fail.

use super::Choices;
use memtide_sim::hardware::Hardware;
use memtide_sim::kernel::{Kernel, Who};
use memtide_sim::workload::{Kind, Plan};

/// One event, by a thread of the plan.
pub fn happen(
    kernel: &mut Kernel,
    hw: &mut Hardware,
    plan: &Plan,
    choices: &mut Choices<'_>,
    quantum: u32,
) {
    let thread = choices.below(plan.threads.len() as u32);
    let cpu = hw.cpu_of_thread(thread);
    let who = Who {
        thread,
        cpu,
        node: hw.node_of_cpu(cpu),
        space: plan.threads[thread as usize].space,
        now_ns: u64::from(quantum) * 1_000_000,
    };
    let at = choices.below(plan.regions.len() as u32) as usize;
    let (kind, pages) = {
        let region = &kernel.regions.get(at).plan;
        (region.kind, region.pages)
    };
    let page = choices.below(pages);
    match choices.below(4) {
        0 if !kernel.regions.get(at).freed => {
            let others = kernel.regions.iter().position(|other| {
                other
                    .file
                    .is_some_and(|file| kernel.regions.files()[file].pages >= pages)
            });
            let file_of = others.filter(|_| choices.once_in(2));
            kernel.remap(hw, &who, at, file_of);
        }
        1 if kind != Kind::Anonymous => {
            kernel.poison_file_page(hw, &who, at, page);
        }
        2 if kernel.is_foreign_region(at) => kernel.change_file(at, page),
        _ if kind != Kind::Anonymous => {
            kernel.write_file(hw, &who, at, page);
        }
        _ => {}
    }
}
