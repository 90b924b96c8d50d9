//! x
mod about;
mod args;
mod causes;
mod comparison;
mod html;
mod progress;
mod table;
mod words;
pub use args::Args;
/// x
pub fn run(_args: Args, _context: &crate::cli::Context) -> anyhow::Result<std::process::ExitCode> {
    todo!()
}
