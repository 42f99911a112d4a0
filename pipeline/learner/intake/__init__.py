"""From the log to a verdict: records polled, decoded, judged, accounted for, refused."""
