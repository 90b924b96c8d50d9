//! `memtide top`: the running service, live.
//!
//! Threads of their own listen to the service's stream of statuses, ask for processes, and listen to the
//! keys; all hand over what they have heard. Here keys and statuses change a [`state::State`], and [`draw`] makes a picture
//! of it, which depends on nothing else. [`screen`] is the terminal; whatever way it ends, the terminal is
//! as before.
//!
//! Who reads keys may wait for the rest of one for ever, and for a terminal that has gone. So nothing here
//! waits for that thread: a signal and the end of the terminal are looked for between what is heard.

mod draw;
mod listen;
#[cfg(test)]
mod picture;
mod screen;
mod state;

use crate::shared::context::{BadUsage, Context};
use crate::shared::control::client::Client;
use crate::shared::outside::causes;
use crate::shared::signals;
use anyhow::{Context as _, bail};
use listen::Heard;
use ratatui::crossterm::event::Event;
use state::{Key, State};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

/// How soon a signal and the end of the terminal are noticed.
const SOON: Duration = Duration::from_millis(100);
/// What may have been heard between two pictures.
const MOST: usize = 64;
/// What a picture for a pipe is wide, and high at least.
const PAGE: (u16, u16) = (100, 24);

/// Watch the running service: tiers, classes, rates, and what the loop does
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print one picture as text, and end
    #[arg(long)]
    once: bool,

    /// Begin with the processes instead of the classes
    #[arg(long)]
    processes: bool,
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
    if args.processes {
        state.show_processes();
    }
    if args.once {
        state.hear(client.status()?);
        if let Some(order) = state.wanted() {
            match client.processes(order, listen::PROCESSES) {
                Ok(processes) => state.hear_processes(processes),
                Err(error) if args.processes => return Err(error),
                Err(error) => state.lose_processes(causes(&error)),
            }
        }
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
    let signal = signals::hear()?;
    let (tell, heard) = mpsc::sync_channel(MOST);
    listen::to_the_service(client, context.root.clone(), tell.clone())?;
    let (order, wanted) = mpsc::channel();
    listen::to_the_processes(context.root.clone(), wanted, tell.clone())?;
    let mut asked = None;
    let mut screen = screen::Screen::begin()?;
    listen::to_the_keys(tell)?;
    let mut stale = true;
    'all: while signal.load(Ordering::Relaxed) == 0 {
        if screen::has_gone() {
            bail!("the terminal has gone");
        }
        if std::mem::take(&mut stale) {
            screen.draw(&state)?;
        }
        let first = heard.recv_timeout(SOON);
        for heard in first.into_iter().chain(heard.try_iter().take(MOST)) {
            // Another size is news, too.
            stale = true;
            if !take(heard, &mut state)? {
                break 'all;
            }
        }
        if asked != state.wanted() {
            asked = state.wanted();
            order.send(asked).context("cannot ask for processes")?;
        }
    }
    screen.end()?;
    Ok(ExitCode::SUCCESS)
}

/// Takes what was heard. Whether it goes on.
fn take(heard: Heard, state: &mut State) -> anyhow::Result<bool> {
    match heard {
        Heard::Status(standing) => state.hear(*standing),
        Heard::Processes(processes) => state.hear_processes(processes),
        Heard::NoProcesses(why) => state.lose_processes(why),
        Heard::Trouble(why) => state.lost(why),
        Heard::Event(Event::Key(key)) => {
            return Ok(Key::of(&key).is_none_or(|key| state.press(key)));
        }
        Heard::Event(_) => {}
        Heard::Deaf(error) => return Err(error).context("cannot read keys"),
    }
    Ok(true)
}
