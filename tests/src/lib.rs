//! End-to-end, contract and layer tests. This library holds nothing but the examples of the guides,
//! so that they are compiled and run.

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../CONTRIBUTING.md")]
struct Contributing;
