//! `memtide top`: the running service, live.
//!
//! A thread of its own listens to the service's stream of statuses and hands them over. Here keys and
//! statuses change a [`state::State`], and [`draw`] makes a picture of it, which depends on nothing else.
//! [`screen`] is the terminal; whatever way it ends, the terminal is as before.

mod draw;
mod listen;
mod screen;
mod state;

use crate::shared::context::{BadUsage, Context};
use crate::shared::control::client::Client;
use crate::shared::signals;
use listen::Heard;
use ratatui::crossterm::event::{self, Event};
use state::{Key, State};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How soon a status, a key or a signal is noticed.
const SOON: Duration = Duration::from_millis(100);
/// What a picture for a pipe is wide, and high at least.
const PAGE: (u16, u16) = (100, 24);

/// Watch the running service: tiers, classes, rates, and what the loop does
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print one picture as text, and end
    #[arg(long)]
    once: bool,
}

/// Runs the command.
pub fn run(args: Args, context: &Context) -> anyhow::Result<ExitCode> {
    if context.json {
        let what = "memtide top draws; memtide status --json prints the same figures".to_owned();
        return Err(BadUsage(what).into());
    }
    // Before the screen changes: without a service there is nothing to show.
    let mut client = Client::connect(&context.root)?;
    let host = context.root.read("proc/sys/kernel/hostname").ok().flatten();
    let host = host.unwrap_or_default();
    let host = String::from_utf8_lossy(&host).trim().to_owned();
    let mut state = State::new(host, context.styled);
    if args.once {
        state.hear(client.status()?);
        state.for_a_page();
        let height = PAGE
            .1
            .saturating_add(state.rows().try_into().unwrap_or(u16::MAX / 2));
        context.print(&draw::page(&state, PAGE.0, height.min(1000))?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !screen::there_is_one() {
        let what = "memtide top needs a terminal; memtide top --once prints to a pipe".to_owned();
        return Err(BadUsage(what).into());
    }
    client.watch()?;
    let heard = listen::begin(client, context.root.clone())?;
    let signal = signals::hear()?;
    let mut screen = screen::Screen::begin()?;
    let mut stale = true;
    while signal.load(Ordering::Relaxed) == 0 {
        if std::mem::take(&mut stale) {
            screen.draw(&state)?;
        }
        if event::poll(SOON)? {
            // Another size is news, too.
            stale = true;
            let wants = match event::read()? {
                Event::Key(key) => Key::of(&key),
                _ => None,
            };
            if wants.is_some_and(|key| !state.press(key)) {
                break;
            }
        }
        for heard in heard.try_iter() {
            stale = true;
            match heard {
                Heard::Status(standing) => state.hear(*standing),
                Heard::Trouble(why) => state.lost(why),
            }
        }
    }
    screen.end()?;
    Ok(ExitCode::SUCCESS)
}
