"""JSON of rocprofv3 (`rocprofv3 --output-format json`) into timelines."""
