//! Tests of the expression language.
