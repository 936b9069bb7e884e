//! What a cache holds, how much room it takes, and who leaves for whom.
