//! Captured exchanges of Open MPI and libpmix, replayed against the server, and random requests against a model.

mod board;
mod events;
mod player;
mod property;
mod published;

use player::Player;

use crate::split::Split;

/// Plays a transcript in one piece, byte by byte, and in random splits.
fn replays(name: &str, text: &str) {
    for split in [Split::Whole, Split::Bytes, Split::Random(1), Split::Random(2)] {
        Player::new(text).play(split).unwrap_or_else(|error| panic!("{name}, {split:?}: {error}"));
    }
}

macro_rules! transcripts {
    ($($test:ident $file:literal)*) => {
        $(
            #[test]
            fn $test() {
                replays($file, include_str!(concat!("transcripts/", $file, ".txt")));
            }
        )*
    };
}

transcripts! {
    open_mpi_5_with_one_rank "ompi5-n1"
    open_mpi_5_with_two_ranks "ompi5-n2"
    open_mpi_5_with_least_job_info "ompi5-n2-minimum"
    open_mpi_5_in_format_3 "ompi5-n2-format-v3"
    open_mpi_5_in_format_4 "ompi5-n2-format-v4"
    open_mpi_5_with_four_ranks "ompi5-n4"
    open_mpi_5_aborts "ompi5-abort"
    open_mpi_5_shrinks_after_a_death "ompi5-ulfm"
    open_mpi_5_publishes_names "ompi5-names"
    open_mpi_5_makes_groups "ompi5-sessions"
    open_mpi_5_connects_again "ompi5-two-session-cycles"
    open_mpi_5_spawns "ompi5-spawn"
    open_mpi_4_with_one_rank "ompi4-n1"
    open_mpi_4_with_two_ranks "ompi4-n2"
    open_mpi_4_publishes_names "ompi4-names"
    open_mpi_4_spawns "ompi4-spawn"
    libpmix_3_puts_and_publishes "pmix323-put-get-publish"
    libpmix_4_puts_and_publishes "pmix422-put-get-publish"
    libpmix_4_queries_and_makes_groups "pmix422-events-query-group-spawn"
    libpmix_6_puts_and_publishes "pmix610-put-get-publish"
    libpmix_6_queries_and_makes_groups "pmix610-events-query-group"
}
