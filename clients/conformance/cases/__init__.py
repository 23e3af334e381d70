"""What every client has to do. Each module has one subject; each `Case` in it is found by `harness.case.all_cases`."""
