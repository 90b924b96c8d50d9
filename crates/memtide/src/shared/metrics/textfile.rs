//! A file for node_exporter's textfile collector, whole at every moment.
//!
//! A thread of its own writes it: a slow disk must not make the loop wait.

use super::exposition::Exposition;
use memtide_linux::files;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// From one write to the next.
const EVERY: Duration = Duration::from_secs(10);

/// A file that is written now and then.
pub struct TextFile {
    path: PathBuf,
    /// Dropped, it ends the thread.
    go_on: Sender<()>,
    thread: JoinHandle<io::Result<()>>,
    /// The first error, until it is told.
    trouble: Arc<Mutex<Option<io::Error>>>,
}

impl TextFile {
    /// Writes it for the first time, and then every 10 s.
    ///
    /// # Errors
    /// It cannot be written, or there can be no thread.
    pub fn begin(path: PathBuf, exposition: Arc<Exposition>) -> io::Result<TextFile> {
        files::write(&path, exposition.plain().as_bytes())?;
        let (go_on, wait) = mpsc::channel();
        let trouble = Arc::new(Mutex::new(None));
        let (place, first) = (path.clone(), Arc::clone(&trouble));
        let work = move || {
            let mut told = false;
            loop {
                let ended = wait.recv_timeout(EVERY) == Err(RecvTimeoutError::Disconnected);
                let written = files::write(&place, exposition.plain().as_bytes());
                match written {
                    _ if ended => return written,
                    Err(error) if !told => {
                        told = true;
                        *first.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    }
                    _ => {}
                }
            }
        };
        let thread = thread::Builder::new()
            .name("metrics-file".to_owned())
            .spawn(work)?;
        Ok(TextFile {
            path,
            go_on,
            thread,
            trouble,
        })
    }

    /// What went wrong and was not told yet, in a sentence.
    pub fn trouble(&self) -> Option<String> {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let error = trouble.take()?;
        Some(self.sentence(&error))
    }

    /// Writes it for the last time; what went wrong, in a sentence.
    pub fn end(self) -> Option<String> {
        let TextFile {
            path,
            go_on,
            thread,
            trouble: _,
        } = self;
        drop(go_on);
        let error = thread.join().unwrap_or(Ok(())).err()?;
        Some(sentence(&path, &error))
    }

    fn sentence(&self, error: &io::Error) -> String {
        sentence(&self.path, error)
    }
}

fn sentence(path: &std::path::Path, error: &io::Error) -> String {
    let path = path.display();
    format!("--metrics-file: {path} is out of date: {error}; the run goes on")
}

#[cfg(test)]
mod tests {
    use super::super::exposition::tests::tiering;
    use super::*;

    #[test]
    fn the_file_is_there_at_once_and_up_to_date_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memtide.prom");
        let exposition = Arc::new(tiering());
        let file = TextFile::begin(path.clone(), Arc::clone(&exposition)).unwrap();
        let read = || std::fs::read_to_string(&path).unwrap();
        assert_eq!(read(), exposition.plain());
        exposition.tell(&memtide_loop::report::Status {
            processes: 77,
            ..Default::default()
        });
        assert_eq!(file.end(), None);
        assert!(read().contains("memtide_processes{loop=\"tier\"} 77"));
        // Nothing else is left in the folder.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("gone");
        let path = below.join("memtide.prom");
        assert!(TextFile::begin(path.clone(), Arc::new(tiering())).is_err());
        std::fs::create_dir(&below).unwrap();
        let file = TextFile::begin(path.clone(), Arc::new(tiering())).unwrap();
        std::fs::remove_dir_all(&below).unwrap();
        let told = file.end().unwrap();
        assert!(
            told.contains("out of date") && told.contains("memtide.prom"),
            "{told}"
        );
    }
}
