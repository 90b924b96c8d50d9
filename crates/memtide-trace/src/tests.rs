use super::*;
use proptest::prelude::*;

fn csv(text: &str) -> Vec<Result<Row, String>> {
    let text = std::io::Cursor::new(text.to_owned().into_bytes());
    Rows::from_csv(text, Path::new("t.csv"))
        .map(|row| row.map_err(|error| error.to_string()))
        .collect()
}

fn row(time_ns: u64, thread: u32, address: u64, write: bool) -> Row {
    Row {
        time_ns,
        thread,
        address,
        write,
    }
}

/// What comes back from a file.
fn through(rows: &[Row], format: Format) -> Vec<Row> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(match format {
        Format::Csv => "t.csv",
        Format::Parquet => "t.parquet",
    });
    let mut writer = Writer::new(File::create(&path).unwrap(), format).unwrap();
    for row in rows {
        writer.write(row).unwrap();
    }
    writer.finish().unwrap();
    Rows::open(&path).unwrap().map(Result::unwrap).collect()
}

#[test]
fn columns_in_any_order_and_others_passed_over() {
    let rows =
        csv("write, address ,comm,time_ns,thread\n1,0x1000,a,5,7\r\nfalse,4096,\"b,c\",5,8\n");
    assert_eq!(
        rows,
        [Ok(row(5, 7, 4096, true)), Ok(row(5, 8, 4096, false))]
    );
    assert_eq!(csv("time_ns,thread,address,write\n"), []);
}

#[test]
fn what_is_wrong_is_said_with_its_row() {
    let header = "time_ns,thread,address,write\n1,0,0,0\n";
    for (line, says) in [
        (
            "x,0,0,0",
            "t.csv: row 2: time_ns is \"x\"; it is a decimal number from 0 to 2^64 - 1",
        ),
        (
            "-1,0,0,0",
            "t.csv: row 2: time_ns is \"-1\"; it is a decimal number from 0 to 2^64 - 1",
        ),
        (
            "+1,0,0,0",
            "t.csv: row 2: time_ns is \"+1\"; it is a decimal number from 0 to 2^64 - 1",
        ),
        (
            "1,4294967296,0,0",
            "t.csv: row 2: thread is 4294967296; it is a number up to 4294967295",
        ),
        (
            "1,0,0x,0",
            "t.csv: row 2: address is \"0x\"; it is a number from 0 to 2^64 - 1, decimal or as 0x7f00",
        ),
        (
            "1,0,0,yes",
            "t.csv: row 2: write is \"yes\"; it is true or false",
        ),
        ("1,0,0", "t.csv: row 2: 3 values for 4 columns"),
        ("1,0,0,0,0", "t.csv: row 2: 5 values for 4 columns"),
        (
            "0,0,0,0",
            "t.csv: row 2: time_ns goes back from 1 to 0; sort the rows by time_ns",
        ),
    ] {
        let rows = csv(&format!("{header}{line}\n9,0,0,0\n"));
        assert_eq!(
            rows,
            [Ok(row(1, 0, 0, false)), Err(says.to_owned())],
            "{line}"
        );
    }
    for text in ["", "1,2,3,4\n", "time_ns,time_ns,thread,address,write\n"] {
        let rows = csv(text);
        let says = "t.csv: its first line does not name the column time_ns once; \
                    it reads time_ns,thread,address,write in any order";
        assert_eq!(rows, [Err(says.to_owned())]);
    }
}

#[test]
fn files_that_are_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let says = |name: &str, content: Option<&[u8]>| {
        let path = folder.path().join(name);
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let Err(error) = Rows::open(&path) else {
            panic!("{name} was opened");
        };
        assert_eq!(error.file, path);
        error.what
    };
    assert!(says("a.parquet", None).contains("No such file"));
    assert!(says("a.txt", Some(b"")).contains(".parquet or .csv"));
    let not = says(
        "b.parquet",
        Some(b"PAR1 and then nothing that makes sense PAR1"),
    );
    assert!(
        not.starts_with("not a Parquet file that can be read: "),
        "{not}"
    );
    assert!(says("c.parquet", Some(b"")).starts_with("not a Parquet file"));
}

/// A cut or a flipped byte anywhere is an error or other rows, and never a crash.
#[test]
fn a_damaged_parquet_file_ends_in_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let mut writer = Writer::new(File::create(&path).unwrap(), Format::Parquet).unwrap();
    for n in 0..300 {
        writer
            .write(&row(n, n as u32 % 3, n << 12, n % 2 == 0))
            .unwrap();
    }
    writer.finish().unwrap();
    let whole = std::fs::read(&path).unwrap();
    let mut errors = 0;
    for at in 0..whole.len() {
        for damage in [0xff, 0x01, 0x80] {
            let mut damaged = whole.clone();
            damaged[at] ^= damage;
            if damage == 0x80 {
                damaged.truncate(at);
            }
            std::fs::write(&path, damaged).unwrap();
            let rows = Rows::open(&path).map(|rows| rows.take(100_000).all(|row| row.is_ok()));
            errors += u32::from(rows != Ok(true));
        }
    }
    assert!(errors as usize > whole.len());
}

proptest! {
    #[test]
    fn rows_come_back_as_they_were(
        rows in proptest::collection::vec((any::<u64>(), any::<u32>(), any::<u64>(), any::<bool>()), 0..200)
    ) {
        let mut rows: Vec<Row> = rows.into_iter().map(|(t, n, a, w)| row(t, n, a, w)).collect();
        rows.sort_by_key(|row| row.time_ns);
        prop_assert_eq!(&through(&rows, Format::Csv), &rows);
        prop_assert_eq!(&through(&rows, Format::Parquet), &rows);
    }
}

#[test]
fn more_rows_than_a_batch_and_a_row_group() {
    // 8,192 rows are a batch, 1,048,576 a row group.
    let rows: Vec<Row> = (0..1_060_000).map(|n| row(n, 1, n * 64, false)).collect();
    assert!(through(&rows, Format::Parquet) == rows);
}

#[test]
fn a_line_without_an_end_is_an_error() {
    let head = std::io::Cursor::new(b"time_ns,thread,address,write\n".to_vec());
    for endless in [b'1', b'"', b' '] {
        let text = head.clone().chain(std::io::repeat(endless));
        let rows: Vec<_> = Rows::from_csv(text, Path::new("t.csv")).collect();
        let error = rows[0].as_ref().unwrap_err().to_string();
        assert!(error.contains("a line is longer than 64 KiB"), "{error}");
    }
    let text = std::io::repeat(b'x');
    let error = Rows::from_csv(text, Path::new("t.csv")).next().unwrap();
    assert!(error.unwrap_err().to_string().contains("64 KiB"));
}

/// What was written to says why it took no more, without the library's words.
#[test]
fn a_failed_write_is_the_error_of_what_was_written_to() {
    let rows: Vec<Row> = (0..9).map(|n| row(n, 1, n * 64, false)).collect();
    for format in [Format::Csv, Format::Parquet] {
        let write = || {
            let full = std::fs::File::options().write(true).open("/dev/full")?;
            let mut writer = Writer::new(full, format)?;
            rows.iter().try_for_each(|row| writer.write(row))?;
            writer.finish().map(drop)
        };
        let error: std::io::Error = write().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
        assert!(!error.to_string().contains("External"), "{error}");
    }
}
