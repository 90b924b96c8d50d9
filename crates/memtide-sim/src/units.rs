//! Sizes, times and rates as text with units: "128 GiB", "110 ns", "300 GB/s". (owner: scen)
