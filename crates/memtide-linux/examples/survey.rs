//! Measures what it costs to find out where a process's pages are.
//!
//! `survey PID` reads the mappings of a process, and surveys its memory twice:
//! as memtide does, which asks the kernel for no page of a mapping whose pages are
//! all on one node; and with every mapping asked about. It prints nanoseconds a
//! present base page. Changes nothing.

use memtide_core::units::PageSize;
use memtide_linux::fs::{Root, topology};
use memtide_linux::live::LiveWorld;
use memtide_linux::live::processes::Selection;
use memtide_loop::world::{AddressSpace, Presence, Sought, Span, World};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let pid = std::env::args()
        .nth(1)
        .ok_or("usage: survey PID")?
        .parse()?;
    let root = Root::default();
    let topology = topology::read(&root)?.topology;
    let page = PageSize::new(rustix::param::page_size() as u32).ok_or("pages of an odd size")?;
    let selection = Selection::Pids(vec![pid]);
    let mut world = LiveWorld::new(root, topology, page, selection, Vec::new());
    let mut seen = Vec::new();
    world.processes(&mut seen)?;
    let process = seen.first().ok_or("no such process")?.process;
    let mut memory = AddressSpace::default();
    let began = Instant::now();
    let here = world.address_space(process, &mut memory)?;
    let read = began.elapsed();
    let sought: Vec<Sought> = memory
        .areas
        .iter()
        .map(|area| Sought {
            span: Span {
                first: area.first,
                pages: area.pages,
            },
            counted: area.counted,
        })
        .collect();
    let unknown: Vec<Sought> = sought.iter().map(|one| one.span.into()).collect();
    let mut results = Vec::new();
    for spans in [&sought, &unknown] {
        let (mut all, mut huge) = (0, 0);
        let began = Instant::now();
        let there = world.survey(process, spans, &mut |run| {
            all += run.pages;
            huge += u64::from(run.huge) * run.pages;
        })?;
        if (here, there) != (Presence::Here, Presence::Here) {
            return Err("the process ended".into());
        }
        results.push((all, huge, began.elapsed()));
    }
    let [(pages, huge, as_is), (pages_asked, _, asked)] = results[..] else {
        unreachable!("two surveys");
    };
    let each = |time: std::time::Duration, pages: u64| time.as_nanos() as f64 / pages.max(1) as f64;
    println!("{pages} pages, {huge} of them in huge pages");
    println!("reading mappings  {:7.2} ns a page", each(read, pages));
    println!("survey            {:7.2} ns a page", each(as_is, pages));
    println!(
        "each asked about  {:7.2} ns a page",
        each(asked, pages_asked)
    );
    Ok(())
}
