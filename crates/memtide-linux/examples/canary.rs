//! How late each node of this machine answers now, and what a reading takes: the median
//! of 200 readings, and of their times.

use memtide_core::pages::NodeSpace;
use memtide_core::units::PageSize;
use memtide_linux::fs::{Root, topology};
use memtide_linux::live::canary::Canaries;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let topology = topology::read(&Root::default())?.topology;
    let mut canaries = Canaries::default();
    // Whoever runs this by hand sees how much is free.
    let roomy = NodeSpace {
        free: u64::from(u32::MAX),
        high: 0,
        promo: 0,
        present: u64::from(u32::MAX),
    };
    for node in topology.memory_nodes().iter() {
        let (mut readings, mut times) = (Vec::new(), Vec::new());
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(5));
            let before = Instant::now();
            let read = canaries.read(node, &topology, || Some(roomy), PageSize::KIB_4);
            times.push(before.elapsed());
            readings.extend(read);
        }
        // The first one takes the memory, too.
        times.remove(0);
        readings.sort_unstable();
        times.sort_unstable();
        let (least, most) = (readings.first(), readings.last());
        let median = readings.get(readings.len() / 2);
        let time = times[times.len() / 2];
        println!(
            "node {node}: {median:?} ns, from {least:?} to {most:?}; a reading takes {time:?}"
        );
    }
    Ok(())
}
