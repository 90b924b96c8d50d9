//! The terminal: another screen, without echo, and put back whatever happens. A mistake in memtide puts it
//! back, too, before it is told.

use super::draw::draw;
use super::state::State;
use anyhow::Context as _;
use ratatui::DefaultTerminal;
use std::io::{IsTerminal, stdin, stdout};

/// The terminal, until it is dropped.
pub struct Screen {
    terminal: DefaultTerminal,
    taken: bool,
}

/// Whether there is one to draw on, with keys.
pub fn there_is_one() -> bool {
    stdout().is_terminal() && stdin().is_terminal()
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// The terminal's.
    pub fn begin() -> anyhow::Result<Screen> {
        let terminal = ratatui::try_init().context("cannot take the terminal")?;
        Ok(Screen {
            terminal,
            taken: true,
        })
    }

    /// Shows `state`.
    ///
    /// # Errors
    /// The terminal's.
    pub fn draw(&mut self, state: &State) -> anyhow::Result<()> {
        let drawn = self.terminal.draw(|frame| draw(frame, state));
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
        if !std::mem::take(&mut self.taken) {
            return Ok(());
        }
        // Also where the cursor could not be shown.
        let shown = self.terminal.show_cursor();
        ratatui::try_restore()?;
        shown
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.put_back();
    }
}
