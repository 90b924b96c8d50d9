use memtide_sim::scenario::*;
fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap();
    let scale: Option<u32> = args.next().map(|s| s.parse().unwrap());
    let only: Vec<String> = args.collect();
    let text = std::fs::read_to_string(&name).unwrap();
    let scenario = Scenario::read(&text, &name, &mut |path| {
        std::fs::read_to_string(format!("scenarios/{path}")).map_err(|e| e.to_string())
    })
    .unwrap_or_else(|e| panic!("{e}"));
    let scale = scale.filter(|s| *s > 0);
    let t = std::time::Instant::now();
    let c = run(
        &scenario,
        &Options {
            scale,
            only,
            jobs: 2,
            seed: std::env::var("SEED").map_or(1, |s| s.parse().unwrap()),
            check: std::env::var("CHECK").is_ok(),
            ..Options::default()
        },
        &Quiet,
    )
    .unwrap_or_else(|e| panic!("{e}"));
    println!("{}", reproduction::table(&c));
    for r in &c.rows {
        let x = &r.result;
        println!("{:?}", x.group_seconds);
        println!(
            "{} {:.2}s sd={} fl={} dl={} ds={} it={} acc={}",
            r.configuration,
            x.seconds,
            x.tlb_shootdowns,
            x.tlb_flushes,
            x.dtlb_load_misses,
            x.dtlb_store_misses,
            x.itlb_misses,
            x.accesses
        );
        println!("  luf={:?} checked={:?}", x.luf, x.checked);
        println!("  {:?}", x.overhead);
        println!(
            "  bytes/s {:?} pages {:?} fast {}",
            x.bytes_per_s, x.pages_by_node, x.fast_share
        );
        let c: Vec<String> = x
            .counters
            .iter()
            .filter(|(_, v)| *v > 0)
            .map(|(k, v)| format!("{}={v}", k.name()))
            .collect();
        println!("  {}", c.join(" "));
    }
    println!("{:.1} s wall", t.elapsed().as_secs_f64());
}
