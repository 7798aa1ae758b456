//! The live web view.
