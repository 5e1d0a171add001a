//! PMIx requests that are refused in every state.

use hydrant_core::wire::pmix::{WILDCARD, kind, status};

use super::{Expected, World, command, job_of, keys, name_of};

impl World<'_> {
    /// Requests that the server refuses in every state.
    pub(super) fn refused(&mut self, conn: usize, which: u8) {
        let other = name_of(1 - job_of(conn)).as_bytes();
        let before = self.snapshot();
        let mut code = status::NOT_FOUND;
        let tag = match which % 16 {
            // Gets from a job that is unknown, and from a rank that another one does not have.
            n @ 0..2 => self.send(conn, |writer| {
                command(writer, 4);
                writer.single();
                writer.string(if n == 0 { b"nowhere" } else { other });
                writer.single();
                writer.uint32(77);
                writer.array(0);
            }),
            2 => {
                code = status::NOT_SUPPORTED;
                self.send(conn, |writer| command(writer, 99))
            }
            // Requests that end too early.
            n @ 3..6 => {
                code = status::UNPACK_FAILURE;
                self.send(conn, |writer| {
                    command(writer, [2, 4, 9][usize::from(n) - 3]);
                    writer.single();
                })
            }
            // Collectives without the rank itself, with a rank that does not exist, and with an unknown job.
            n @ 6..9 => {
                let (name, rank) = [(other, 0), (other, 77), (&b"nowhere"[..], WILDCARD)][usize::from(n) - 6];
                if n < 8 {
                    code = status::BAD_PARAM;
                }
                self.send(conn, |writer| {
                    command(writer, 10);
                    writer.array(1);
                    writer.proc(name, rank);
                    writer.array(0);
                })
            }
            // A spawn of nothing, and one that is longer than the limit.
            9 => {
                code = status::BAD_PARAM;
                self.send(conn, |writer| {
                    command(writer, 9);
                    writer.array(0);
                    writer.array(0);
                })
            }
            10 => {
                code = status::OUT_OF_RESOURCE;
                self.send(conn, |writer| {
                    command(writer, 9);
                    writer.array(0);
                    writer.array(1);
                    writer.string(&[b'x'; 300]);
                    writer.count(0);
                    writer.count(0);
                    writer.null_string();
                    writer.count(1);
                    writer.count(0);
                })
            }
            // An event that is longer than a commit.
            11 => {
                code = status::OUT_OF_RESOURCE;
                self.send(conn, |writer| {
                    command(writer, 12);
                    writer.single();
                    writer.int32(-300);
                    writer.single();
                    writer.byte(3);
                    writer.array(1);
                    writer.info(b"text", kind::STRING);
                    writer.string(&[b'x'; 1024]);
                })
            }
            // An order to kill processes.
            12 => {
                code = status::NOT_SUPPORTED;
                self.send(conn, |writer| {
                    command(writer, 18);
                    writer.array(0);
                    writer.array(1);
                    writer.info(b"pmix.jctrl.kill", kind::BOOL);
                    writer.byte(1);
                })
            }
            // A group with more members, whose leaders are not counted.
            13 => {
                code = status::NOT_SUPPORTED;
                self.send(conn, |writer| {
                    command(writer, 24);
                    writer.single();
                    writer.string(b"group");
                    writer.array(1);
                    writer.proc(name_of(job_of(conn)).as_bytes(), WILDCARD);
                    writer.array(1);
                    writer.info(b"pmix.grp.add", kind::PROC);
                    writer.proc(name_of(job_of(conn)).as_bytes(), WILDCARD);
                })
            }
            // A monitor of heartbeats without a time.
            14 => {
                code = status::BAD_PARAM;
                self.send(conn, |writer| {
                    command(writer, 19);
                    writer.single();
                    writer.info(b"pmix.monitor.mbeat", 0);
                    writer.status(0);
                    writer.array(0);
                })
            }
            // A look-up of a key that is never published.
            _ => self.send(conn, |writer| keys(writer, 7, &[9])),
        };
        self.expect(vec![(conn, tag, Expected::Status(code, Vec::new()))]);
        let _ = self.host.server.take_limit_hit();
        assert!(before == self.snapshot(), "refusal {which} changes nothing");
    }
}
