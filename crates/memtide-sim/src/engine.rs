//! (owner: hot; see the design)

/// Stand-in until helper hot's engine is merged.
pub fn run_configuration(
    _machine: &crate::spec::MachineSpec,
    _workload: crate::workload::Workload,
    _configuration: &crate::config::Configuration,
    _seed: u64,
    _scale: u32,
    _progress: &(dyn Fn(f64) + Sync),
) -> Result<crate::result::RunResult, String> {
    Err("no engine yet".to_owned())
}
