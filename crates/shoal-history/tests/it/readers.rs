//! Logs that readers accept or reject.

use std::io::Cursor;

use proptest::prelude::{any, prop, prop_assert, proptest};
use proptest::strategy::Strategy;
use shoal_history::read::Reader;
use shoal_history::run::Passed;
use shoal_history::{Format, History, HistoryError, Moment};

/// The history in a file of this text.
pub fn read(text: &str, format: Option<Format>) -> Result<History, HistoryError> {
    read_bytes(text.as_bytes().to_vec(), format)
}

pub fn read_bytes(bytes: Vec<u8>, format: Option<Format>) -> Result<History, HistoryError> {
    let mut reader = Reader::default();
    reader.file("h", format, Cursor::new(bytes))?;
    reader.finish()
}

fn refusal(text: &str, format: Format) -> String {
    read(text, Some(format)).expect_err("is refused").to_string()
}

#[test]
fn rows_of_one_run_are_its_inputs() {
    let text = "\
name,id,submitted,started,ended,deadline,input,input_bytes,input_bytes_per_s,output
etl,7,2026-11-20T02:00:00Z,2026-11-20T02:00:05Z,2026-11-20 02:10:00,1795143600,s3a://lake/fact/,100,10,
,7,,,,,s3://lake/dim/countries.csv,5,,s3://lake/out/
etl,8,2026-11-21T02:00:00Z,,,,,,,
etl,9,2026-11-22T02:00:00Z,,,,/tmp/local,7,,
";
    let history = read(text, None).unwrap();
    assert_eq!(history.len(), 3);
    assert_eq!(history.passed().collect::<Vec<_>>(), [(Passed::NotInS3, 1)]);
    let (first, end) = history.span().unwrap();
    assert_eq!(first, Moment::parse("2026-11-20T02:00:00Z").unwrap());
    assert_eq!(end, Moment::parse("2026-11-22T02:00:00Z").unwrap());
}

#[test]
fn without_ids_rows_of_one_name_and_submission_are_a_run() {
    let text = "name,submitted,input\na,100,s3://b/x\na,100,s3://b/y\n,,s3://b/z\nb,100,s3://b/x\n";
    assert_eq!(read(text, None).unwrap().len(), 2);
}

#[test]
fn a_row_without_an_id_that_repeats_a_run_is_of_it() {
    let text = "\
id,name,submitted,input
7,etl,100,s3://b/a
,etl,100,s3://b/b
,etl,,s3://b/c
,etl,200,s3://b/d
";
    let inputs: Vec<usize> = read(text, None)
        .unwrap()
        .runs()
        .map(|run| run.inputs.len())
        .collect();
    assert_eq!(inputs, [3, 1]);
}

#[test]
fn a_run_is_a_line_of_json() {
    let text = r#"{"name":"etl","id":7,"submitted":"2026-11-20T02:00:00Z","ended":1795140900,"inputs":[{"path":"s3://b/k","bytes":5}],"outputs":["s3://b/o/"]}

{"name":"etl","submitted":1795226400}
"#;
    assert_eq!(read(text, None).unwrap().len(), 2);
}

#[test]
fn a_run_that_two_files_tell_of_counts_once() {
    let text =
        "{\"name\":\"etl\",\"submitted\":1795226400,\"inputs\":[{\"path\":\"s3://b/k\",\"bytes\":5}]}\n";
    let mut reader = Reader::default();
    for name in ["a", "b"] {
        reader.file(name, None, Cursor::new(text.as_bytes())).unwrap();
    }
    assert_eq!(reader.finish().unwrap().len(), 1);
}

#[test]
fn a_malformed_row_is_refused_with_its_line_and_field() {
    for (text, format, told) in [
        (
            "name,submited\n",
            Format::Csv,
            "h:1: found unknown column `submited`; did you mean `submitted`?\nhint: expected a line with some of name, submitted,",
        ),
        (
            "name,input\n",
            Format::Csv,
            "h:1: found the columns name, input\nhint: expected `name` and `submitted` among them",
        ),
        (
            "name,submitted\na,soon\n",
            Format::Csv,
            "h:2: found `soon` in the column `submitted`\nhint: expected a time such as",
        ),
        (
            "name,submitted\n,5\n",
            Format::Csv,
            "h:2: found no value in the column `name`",
        ),
        (
            "name,submitted\na,\n",
            Format::Csv,
            "h:2: found no value in the column `submitted`",
        ),
        (
            "name,submitted,input,input_bytes\na,5,s3://b/k,-1\n",
            Format::Csv,
            "h:2: found `-1` in the column `input_bytes`\nhint: expected a whole number of bytes",
        ),
        (
            "name,submitted\na,5,6\n",
            Format::Csv,
            "h:2: found 3 values\nhint: expected 2 values",
        ),
        (
            "name,id,submitted\na,1,5\nb,2,5\na,1,5\n",
            Format::Csv,
            "h:4: found another row of the run id 1\nhint: expected the rows of one run together",
        ),
        (
            "name,submitted,started,ended\na,60,61,59\n",
            Format::Csv,
            "h:2: found `ended` 1970-01-01T00:00:59Z before `submitted` 1970-01-01T00:01:00Z\nhint: expected times in this order",
        ),
        (
            "name,submitted,started,ended\na,60,70,65\n",
            Format::Csv,
            "h:2: found `ended` 1970-01-01T00:01:05Z before `started` 1970-01-01T00:01:10Z",
        ),
        (
            "{\"name\":\"a\",\"submitted\":60,\"deadline\":59}\n",
            Format::Jsonl,
            "h:1: found `deadline` 1970-01-01T00:00:59Z before `submitted`",
        ),
        (
            "{\"name\":\"a\"}\n",
            Format::Jsonl,
            "h:1: found missing field `submitted`",
        ),
        (
            "\n{\"name\":\"a\",\"submitted\":5,\"input\":[]}\n",
            Format::Jsonl,
            "h:2: found unknown field `input`",
        ),
        (
            "{\"name\":\" \",\"submitted\":5}\n",
            Format::Jsonl,
            "h:1: found an empty `name`",
        ),
        (
            "{\"name\":\"a\",\"submitted\":\"soon\"}\n",
            Format::Jsonl,
            "h:1: found invalid value: string \"soon\", expected a time",
        ),
        (
            "job0\tnow\t1\t100\t0\t0\n",
            Format::Swim,
            "h:1: found `now` where the submit time stands",
        ),
    ] {
        let refused = refusal(text, format);
        assert!(refused.starts_with(told), "{refused}\n  instead of {told}");
        assert!(refused.contains("\nhint: "), "{refused}");
    }
}

#[test]
fn an_unknown_format_and_an_unreadable_packing_are_refused() {
    let refused = read("hello\n", None).unwrap_err().to_string();
    assert!(
        refused.contains("cannot tell the format of h\nhint: name it with --format: csv, jsonl"),
        "{refused}"
    );
    let refused = read_bytes(b"\xfd7zXZ\0...".to_vec(), None)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("hint: unpack it first: xz -dc h"), "{refused}");
}

#[test]
fn a_quotation_mark_that_nothing_closes_does_not_fill_the_memory() {
    let text = format!("name,submitted\n\"{}", "x\n".repeat(5 << 20));
    let refused = refusal(&text, Format::Csv);
    assert!(refused.contains("is a quotation mark left open?"), "{refused}");
    assert!(refused.contains(":2: found a row of more than"), "{refused}");
}

#[test]
fn jobs_of_swim_are_named_by_their_inputs() {
    let text = "job0\t1\t1\t2267942\t0\t1937944\tinputPath1\t\t\njob1\t2\t1\t500\t7\t0\tinputPath1\t\t\njob2\t3\t1\t500\t7\t0\n";
    let history = read(text, None).unwrap();
    assert_eq!(history.len(), 3);
}

fn format() -> impl Strategy<Value = Format> {
    (0..Format::ALL.len()).prop_map(|number| Format::ALL[number])
}

proptest! {
    #[test]
    fn any_bytes_are_a_history_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2_000), format in format()) {
        if let Err(error) = read_bytes(bytes, Some(format)) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn any_lines_that_begin_as_a_history_are_one_or_refused(
        lines in prop::collection::vec("(name|a|\"|\\{|\\}|:|,|submitted|5|inputs|\\[|\\]|s3://b/k|\t| |-){0,20}", 0..30),
        format in format(),
    ) {
        let header = if format == Format::Csv { "name,submitted,input,input_bytes\n" } else { "" };
        let _ = read(&format!("{header}{}", lines.join("\n")), Some(format));
    }
}
