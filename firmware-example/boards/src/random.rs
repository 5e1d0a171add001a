//! Random numbers: hashes of what the board's generator says.

use core::cell::Cell;

use critical_section::Mutex;
use hydrant_embedded::noise;

use crate::board;

/// Hash of all that the generator has said.
static POOL: Mutex<Cell<[u8; 32]>> = Mutex::new(Cell::new([0; 32]));

/// Returns random bytes. Who learns them learns no others.
pub(crate) fn draw() -> [u8; 32] {
    let mut pool = critical_section::with(|cs| POOL.borrow(cs).get());
    for _ in 0..board::DRAWS {
        let mut said = [0; 64];
        board::random(&mut said);
        pool = noise::hash(&[b"pool", &pool, &said]);
    }
    critical_section::with(|cs| POOL.borrow(cs).set(pool));
    noise::hash(&[b"numbers", &pool])
}
