//! Tests of valid and hostile plugins, of migration and of docs/wasm-abi.md.

mod cache;
mod common;
mod document;
mod exchange;
mod file;
mod hostile;
mod recorded;
