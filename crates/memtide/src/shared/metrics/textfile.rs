//! A file for node_exporter's textfile collector, whole at every moment.
//!
//! A thread of its own writes it: a disk that is slow or stuck must neither make the loop wait nor
//! hold the end.

use super::exposition::Exposition;
use memtide_linux::files;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// From one write to the next.
const EVERY: Duration = Duration::from_secs(10);
/// How long the end waits for the last write.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// A file that is written now and then. Dropped without an end, it stays as it was written last.
pub struct TextFile {
    path: PathBuf,
    /// How it is called where it was given.
    name: String,
    /// Asks for the last write.
    end: Sender<()>,
    ended: Receiver<io::Result<()>>,
    /// The first error, until it is told.
    trouble: Arc<Mutex<Option<io::Error>>>,
}

impl TextFile {
    /// Writes it for the first time, and then every 10 s; where `name` gave it.
    ///
    /// # Errors
    /// It cannot be written or is no regular file, or there can be no thread.
    pub fn begin(path: PathBuf, name: &str, exposition: Arc<Exposition>) -> io::Result<TextFile> {
        write(&path, &exposition)?;
        let (end, asked) = mpsc::channel();
        let (tell_end, ended) = mpsc::channel();
        let trouble = Arc::new(Mutex::new(None));
        let (place, first) = (path.clone(), Arc::clone(&trouble));
        let work = move || {
            let mut told = false;
            loop {
                let asked = asked.recv_timeout(EVERY);
                if asked == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
                let written = write(&place, &exposition);
                if asked.is_ok() {
                    // Nobody waits any more where it took too long.
                    let _ = tell_end.send(written);
                    return;
                }
                if let Err(error) = written
                    && !told
                {
                    told = true;
                    *first.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            }
        };
        let named = thread::Builder::new().name("metrics-file".to_owned());
        named.spawn(work)?;
        Ok(TextFile {
            path,
            name: name.to_owned(),
            end,
            ended,
            trouble,
        })
    }

    /// What went wrong and was not told yet, in a sentence.
    pub fn trouble(&self) -> Option<String> {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let error = trouble.take()?;
        Some(self.sentence(&error))
    }

    fn sentence(&self, error: &io::Error) -> String {
        let path = self.path.display();
        format!("{}: {path} is out of date: {error}", self.name)
    }

    /// Writes it for the last time, and waits so long for that; what went wrong, in a sentence.
    pub fn end(self, patience: Duration) -> Option<String> {
        let _ = self.end.send(());
        let late = || Err(io::ErrorKind::TimedOut.into());
        let written = self.ended.recv_timeout(patience).unwrap_or_else(|_| late());
        Some(self.sentence(&written.err()?))
    }
}

/// A pipe would wait for its reader, and nothing that is no file can be replaced.
fn write(path: &Path, exposition: &Exposition) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(io::Error::other("it is there and is no regular file"));
    }
    files::write(path, exposition.plain().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::exposition::tests::tiering;
    use super::*;

    /// Longer than any disk takes.
    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn the_file_is_there_at_once_and_up_to_date_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memtide.prom");
        let exposition = Arc::new(tiering());
        let file = TextFile::begin(path.clone(), "file", Arc::clone(&exposition)).unwrap();
        let read = || std::fs::read_to_string(&path).unwrap();
        assert_eq!(read(), exposition.plain());
        exposition.tell(&memtide_loop::report::Status {
            processes: 77,
            ..Default::default()
        });
        assert_eq!(file.end(LONG), None);
        assert!(read().contains("memtide_processes{loop=\"tier\"} 77"));
        // Nothing else is left in the folder.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_file_is_refused_and_a_start_that_failed_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let refused = TextFile::begin("/dev/null".into(), "file", Arc::new(tiering()));
        assert!(refused.is_err_and(|error| error.to_string().contains("no regular file")));
        let path = folder.path().join("memtide.prom");
        drop(TextFile::begin(path, "file", Arc::new(tiering())).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("gone");
        let path = below.join("memtide.prom");
        assert!(TextFile::begin(path.clone(), "file", Arc::new(tiering())).is_err());
        std::fs::create_dir(&below).unwrap();
        let file = TextFile::begin(path.clone(), "file", Arc::new(tiering())).unwrap();
        std::fs::remove_dir_all(&below).unwrap();
        let told = file.end(LONG).unwrap();
        assert!(
            told.starts_with("file: ")
                && told.contains("out of date")
                && told.contains("memtide.prom"),
            "{told}"
        );
    }
}
