//! Who is told how the run goes on: the service manager, and who asks at the socket.

use super::manager::Manager;
use crate::shared::control::Control;
use crate::shared::control::standing::{Setup, Standing};
use crate::shared::report::Printer;
use crate::shared::tiering::Watch;
use memtide_core::topology::Topology;
use memtide_core::units::PageSize;
use memtide_loop::report::Status;

/// Both, and what they are told beside the status.
pub struct Watchers<'a> {
    pub manager: &'a Manager,
    pub control: &'a Control,
    pub setup: Setup,
    pub nodes: Topology,
    pub page: PageSize,
}

impl Watchers<'_> {
    /// Leaves the status for who asks at the socket.
    pub fn tell_control(&self, status: &Status) {
        let standing = || Standing::of(status, self.page, &self.setup, &self.nodes);
        self.control.tell(standing);
    }
}

impl Watch for Watchers<'_> {
    fn turned(&self) {
        self.manager.turned();
    }

    fn stands(&self, status: &Status, printer: &Printer) {
        self.tell_control(status);
        self.manager.stands(status, printer);
    }
}
