//! The terminal: another screen, without echo, and put back whatever happens. A mistake in memtide puts it
//! back, too, before it is told.

use super::draw::draw;
use super::state::State;
use anyhow::Context as _;
use ratatui::DefaultTerminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{IsTerminal, stdin, stdout};

/// The terminal, until it is dropped.
pub struct Screen(Option<DefaultTerminal>);

/// Whether there is one to draw on, with keys.
pub fn there_is_one() -> bool {
    stdout().is_terminal() && stdin().is_terminal()
}

/// Whether the terminal of the keys has gone: a window was closed, or a connection has ended.
pub fn has_gone() -> bool {
    let stdin = stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::empty())];
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().intersects(gone)
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// The terminal's.
    pub fn begin() -> anyhow::Result<Screen> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Screen(Some(terminal))),
            Err(error) => {
                // Half of it may have been taken.
                let _ = ratatui::try_restore();
                Err(error).context("cannot take the terminal")
            }
        }
    }

    /// Shows `state`.
    ///
    /// # Errors
    /// The terminal's.
    pub fn draw(&mut self, state: &State) -> anyhow::Result<()> {
        let Some(terminal) = &mut self.0 else {
            return Ok(());
        };
        let drawn = terminal.draw(|frame| draw(frame, state));
        drawn.map(|_| ()).context("cannot draw")
    }

    /// Puts the terminal back.
    ///
    /// # Errors
    /// The terminal's.
    pub fn end(mut self) -> anyhow::Result<()> {
        self.put_back().context("cannot put the terminal back")
    }

    fn put_back(&mut self) -> std::io::Result<()> {
        let Some(mut terminal) = self.0.take() else {
            return Ok(());
        };
        let shown = terminal.show_cursor();
        if shown.is_err() {
            // It would try again and complain on standard error, which may have gone, too.
            std::mem::forget(terminal);
        }
        ratatui::try_restore()?;
        shown
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.put_back();
    }
}
