//! Runs scenarios by name and prints each row beside what was published: `compare NAME [SCALE]`.

use memtide_core::vmstat::Counter;
use memtide_sim::scenario::{Options, Quiet, Scenario, run};

/// Rewrites the tables of docs/reproduction.md.
fn reproduction() {
    let path = "docs/reproduction.md";
    let document = std::fs::read_to_string(path).expect("run it in the repository");
    let options = Options {
        jobs: 2,
        ..Options::default()
    };
    let fresh = memtide_sim::scenario::reproduction::render(&document, &mut |name| {
        let start = std::time::Instant::now();
        let scenario = memtide_sim::scenario::shipped(name).ok_or("no such scenario")?;
        let scenario = scenario.read().map_err(|error| error.to_string())?;
        let comparison = run(&scenario, &options, &Quiet).map_err(|error| error.to_string());
        eprintln!("{name} {:.1} s", start.elapsed().as_secs_f64());
        comparison
    });
    std::fs::write(path, fresh.unwrap()).unwrap();
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "pghot-mode1".to_owned());
    if name == "--reproduction" {
        return reproduction();
    }
    let scale = arguments.next().and_then(|scale| scale.parse().ok());
    let only: Vec<String> = arguments.collect();
    let read = |path: &str| {
        let path = format!("scenarios/{path}");
        std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))
    };
    let text = read(&format!("{name}.toml")).expect("run it in the repository");
    let scenario = match Scenario::read(&text, &name, &mut |path| read(path)) {
        Ok(scenario) => scenario,
        Err(error) => return eprintln!("{error}"),
    };
    let options = Options {
        scale,
        jobs: 2,
        only,
        ..Options::default()
    };
    let start = std::time::Instant::now();
    let comparison = match run(&scenario, &options, &Quiet) {
        Ok(comparison) => comparison,
        Err(error) => return eprintln!("{error}"),
    };
    let wall = start.elapsed().as_secs_f64();
    let mut accesses = 0;
    for row in &comparison.rows {
        let get = |counter| row.result.counters.get(counter);
        accesses += row.result.accesses;
        let o = &row.result.overhead;
        println!(
            "{:6} {:24} {:>10.4e} ratio {:>6.3} published {:>6.3} prom {:>9} moved {:>9} dem {:>9} hints {:>9} ipi {:>10} fast {:.3} | hint {:.1}s mig {:.1}s scan {:.1}s ipi {:.1}s wait {:.1}s smp {:.1}s fault {:.1}s km {:.1} pts {:.1} | {:?} GB/s {:?} rec {}",
            row.case,
            row.configuration,
            row.value,
            row.ratio.unwrap_or(0.0),
            row.published.as_ref().and_then(|p| p.ratio).unwrap_or(0.0),
            get(Counter::PgpromoteSuccess),
            get(Counter::NumaPagesMigrated),
            get(Counter::PgdemoteKswapd) + get(Counter::PgdemoteDirect),
            get(Counter::NumaHintFaults),
            row.result.tlb_shootdowns,
            row.result.fast_share,
            o.hint_fault_ns as f64 / 1e9,
            o.fault_migration_ns as f64 / 1e9,
            o.numa_scan_ns as f64 / 1e9,
            o.shootdown_ns as f64 / 1e9,
            o.migration_wait_ns as f64 / 1e9,
            (o.sampler_ns + o.sample_work_ns) as f64 / 1e9,
            o.page_fault_ns as f64 / 1e9,
            o.kmigrated_ns as f64 / 1e9,
            o.page_table_scan_ns as f64 / 1e9,
            row.result.pages_by_node,
            row.result
                .bytes_per_s
                .iter()
                .map(|b| (b / 1e8).round() / 10.0)
                .collect::<Vec<_>>(),
            get(Counter::PghotRecordedAccesses),
        );
        for placed in &row.result.placed {
            if row.unit == memtide_sim::scenario::Unit::Pages {
                println!("    {} {:?}", placed.region, placed.pages);
            }
        }
    }
    println!(
        "{wall:.1} s, {:.1} M accesses/s",
        accesses as f64 / wall / 1e6
    );
}
