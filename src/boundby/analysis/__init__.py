"""Where the time of a step went: the account, its tables, the verdict, comparisons."""
