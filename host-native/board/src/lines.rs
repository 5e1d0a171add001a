//! Lines about boards for the user.

use hydrant_core::Limit;
use hydrant_core::limits::SPAWN_BYTES_MIN;
use hydrant_core::manage::BoardReport;
use hydrant_core::server::JobReport;

pub(crate) fn limit_line(limit: Limit, size: u32) -> String {
    if limit == Limit::SpawnBytes && size < SPAWN_BYTES_MIN {
        return format!(
            "the board refused a client: limit spawn-bytes of {size} there is too small for spawns: use a board with \
             'hydrant serve --manage', or build its firmware with the feature nodes"
        );
    }
    format!("the board refused a client: limit {} ({size}) is used up there", limit.name())
}

pub(crate) fn job_line(report: &JobReport) -> String {
    let JobReport { size, connected, in_fence, finalized, exited, .. } = report;
    format!(
        "the board's job of {size} ranks: {connected} connected, {in_fence} in the fence, {finalized} finalized, \
         {exited} ended"
    )
}

pub(crate) fn board_line(report: &BoardReport) -> String {
    let BoardReport {
        sockets, free_sockets, accepted, closed, turned_away, jobs, bytes_in, bytes_out, ..
    } = report;
    let stack = if report.stack > 0 { format!(", {} bytes of stack", report.stack) } else { String::new() };
    format!(
        "the board since its start: {jobs} jobs, {accepted} clients of which {closed} were closed and {turned_away} \
         refused, {bytes_in} bytes in, {bytes_out} bytes out, {free_sockets} of {sockets} connections free{stack}"
    )
}
