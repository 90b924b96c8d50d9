//! Random programs with the preloaded pager and without it, on running kernels: nothing differs.
//!
//! The programs and the comparison are C and lie beside the preload library's own tests. 6.12 has no
//! batched call to unmap, so there the pager goes another way than on the host that most programs were
//! tried on.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use super::super::init::job;
use super::{BootClass, Context, Needs, Test};

/// On a disk: what lies in memory only is never evicted.
const FOLDER: &str = "/mnt/random";
const JOBS: &str = "2";

pub(super) fn tests() -> Vec<Test> {
    vec![Test {
        needs: Needs {
            disk: true,
            random_programs: true,
            ..Needs::default()
        },
        ..Test::promise(
            "pager/random-programs".to_owned(),
            "cxl",
            BootClass::Quiet,
            nothing_differs,
        )
    }]
}

fn nothing_differs(context: &mut Context) -> Result<()> {
    let programs = job()?.random_programs.to_string();
    std::fs::create_dir_all(FOLDER)?;
    let output = Command::new("/bin/compare")
        .args(["/bin/libmemtide_pager_preload.so", "/bin/random", FOLDER])
        .args(["1", &programs, JOBS])
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}{errors}");
    context.note(said.trim_end().to_owned())?;
    // Programs that keep nothing would never differ.
    ensure!(
        !said.contains("kept 0 ") && !said.contains("evicted 0 "),
        "{said}"
    );
    Ok(())
}
