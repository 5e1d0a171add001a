//! Standard input, output and error of ranks.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use hydrant_tests::plain::{Job, Scratch, hydrant, run, sorted, text};

#[test]
fn lines_of_different_ranks_do_not_mix() {
    let output =
        run(&["-n", "4", "-l"], "i=0; while [ $i -lt 500 ]; do printf 'line '; echo $i; i=$((i+1)); done");
    let out = text(&output.stdout);
    let mut next = [0; 4];
    for line in out.lines() {
        let (label, rest) = line.split_once("] ").expect("each line has a label");
        let rank: usize = label[1..].parse().unwrap();
        assert_eq!(rest, format!("line {}", next[rank]));
        next[rank] += 1;
    }
    assert_eq!(next, [500; 4]);
}

#[test]
fn standard_error_is_kept_apart() {
    let output = run(&["-n", "2", "-l"], "echo out; echo err >&2");
    assert_eq!(sorted(&output.stdout), ["[0] out", "[1] out"]);
    assert_eq!(sorted(&output.stderr), ["[0] err", "[1] err"]);
}

#[test]
fn bytes_pass_unchanged_and_none_is_lost() {
    let output = run(&["-n", "1"], r"printf 'a\000b\377\r\n\nend'; head -c 1000000 /dev/zero");
    let mut expected = b"a\0b\xff\r\n\nend".to_vec();
    expected.resize(expected.len() + 1_000_000, 0);
    assert!(output.stdout == expected);
    let output = run(&["-n", "3"], "head -c 200000 /dev/zero | tr '\\0' x; test $PMI_RANK = 0 || exit 1");
    assert_eq!(output.stdout, vec![b'x'; 600_000]);
}

#[test]
fn input_is_rank_0s() {
    let script = "test $PMI_RANK = 0 || exec wc -c; read first; echo $first; exec wc -c";
    let mut job = Job::spawn(hydrant(&["-n", "3", "sh", "-c", script]).stdin(Stdio::piped()));
    let mut stdin = job.child.stdin.take().unwrap();
    stdin.write_all(b"go\n").unwrap();
    let mut lines = [job.line(), job.line(), job.line()];
    lines.sort();
    assert_eq!(lines, ["0", "0", "go"]);
    // Rank 0 reads now, and as slowly as it likes.
    stdin.write_all(&vec![b'x'; 3 << 20]).unwrap();
    drop(stdin);
    let (status, out, _) = job.end();
    assert_eq!((status.code(), out), (Some(0), format!("{}\n", 3 << 20)));
}

#[test]
fn whoever_writes_notices_that_rank_0_reads_no_more() {
    let script = "test $PMI_RANK = 0 && exit 0; trap 'exit 0' USR1; while :; do :; done";
    let mut job = Job::spawn(hydrant(&["-n", "2", "sh", "-c", script]).stdin(Stdio::piped()));
    let mut stdin = job.child.stdin.take().unwrap();
    let error = loop {
        if let Err(error) = stdin.write_all(&[0; 4096]) {
            break error;
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    job.signal(rustix::process::Signal::USR1);
    let code = job.end().0.code();
    // The signal may have come before rank 1 had its trap.
    assert!(matches!(code, Some(0 | 138)), "{code:?}");
}

#[test]
fn ranks_notice_that_nobody_reads_their_output() {
    let mut job = Job::start(&["-n", "2"], "exec yes");
    assert_eq!(job.line(), "y");
    let Job { ref mut child, .. } = job;
    let stderr = child.stderr.take().unwrap();
    // Closes the pipe.
    job.stdout = BufReader::new(hydrant(&["-n", "1", "true"]).spawn().unwrap().stdout.take().unwrap());
    let mut report = String::new();
    BufReader::new(stderr).read_to_string(&mut report).unwrap();
    assert_eq!((job.child.wait().unwrap().code(), report.as_str()), (Some(128 + 13), ""));
}

#[test]
fn a_reader_that_does_not_read_stops_the_writers_and_not_the_service() {
    // Rank 0 fills everything up; meanwhile rank 1 talks PMI, and says so on another stream.
    let script = r#"test $PMI_RANK = 0 && exec head -c 3000000 /dev/zero
        printf 'cmd=init pmi_version=1 pmi_subversion=1\n' >&3; read reply <&3; echo "$reply" >&2
        printf 'cmd=finalize\n' >&3; read reply <&3; echo "$reply" >&2"#;
    let mut job = Job::start(&["-n", "2"], script);
    let mut stderr = BufReader::new(job.child.stderr.take().unwrap()).lines();
    assert!(stderr.next().unwrap().unwrap().starts_with("cmd=response_to_init rc=0"));
    assert!(stderr.next().unwrap().unwrap().starts_with("cmd=finalize_ack"));
    let (status, out, _) = job.end();
    assert_eq!((status.code(), out.len()), (Some(0), 3_000_000));
}

#[test]
fn output_goes_to_the_files_that_patterns_name() {
    let scratch = Scratch::new("patterns");
    let (out, err) = (scratch.path("out.%r.%a"), scratch.path("err.%p"));
    let script = "echo $PMI_RANK; echo $$ >&2";
    let args = ["-outfile-pattern", &out, "-errfile-pattern", &err, "-n", "1", "sh", "-c", script];
    let args = [&args[..], &[":", "-n", "1", "sh", "-c", script]].concat();
    let output = hydrant(&args).output().unwrap();
    assert_eq!((output.stdout.len(), text(&output.stderr).as_str()), (0, ""));
    let mut files: Vec<_> = std::fs::read_dir(&scratch.0)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap().trim().to_owned())
        })
        .collect();
    files.sort();
    assert_eq!(files.len(), 4, "{files:?}");
    for (name, text) in &files[..2] {
        assert_eq!(name, &format!("err.{text}"));
    }
    assert_eq!(files[2..], [("out.0.0", "0"), ("out.1.1", "1")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    let output = hydrant(&["-outfile-pattern", "/nowhere/%r", "-n", "1", "echo"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot open /nowhere/0 for the output of rank 0"));
}

#[test]
fn lost_output_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = hydrant(&["-n", "1", "echo", "x"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("output was lost, cannot write standard output: "));
}
