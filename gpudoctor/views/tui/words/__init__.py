"""What the model holds, as text and cells for the screens: functions from values to words, which draw nothing."""
