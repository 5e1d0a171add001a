//! Sizes and sources of the server.

use hydrant_embassy::{Board, Limits, Net, Sizes, Storage, fixed_storage};
use hydrant_embedded::noise;

use crate::{board, random, settings};

/// Ranks of a job: `HYDRANT_RANKS` of the build, or the default of the board.
const RANKS: u32 = match settings::RANKS {
    Some(ranks) => ranks,
    None => board::RANKS,
};

/// The board of this build.
pub(crate) struct ThisBoard;

impl Board for ThisBoard {
    type Net = Net;
    type Tables = fixed_storage!(<ThisBoard as Sizes>::TABLES);

    const NAME: &'static str = board::NAME;
    const SECRET: Option<&'static [u8]> = settings::SECRET;
    const LIMITS: Limits = hydrant_embassy::limits(RANKS, Self::SPARE);

    fn lend(tables: &mut Self::Tables) -> Storage<'_> {
        tables.lend()
    }

    fn millis() -> u64 {
        hydrant_embassy::millis()
    }

    #[cfg(feature = "cortex")]
    fn stack_used() -> u32 {
        crate::stack::used()
    }

    fn ephemeral(secret: &[u8; 32]) -> [u8; 32] {
        noise::hash(&[b"key", secret, &random::draw()])
    }
}
