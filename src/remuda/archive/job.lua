-- What the scripts of jobs share. The state of a job follows from its fields, as in the original.

local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])

-- The state of the job's record with this key; '' when there is none.
local function state_of(job)
  local fields = redis.call('HMGET', job, 'url', 'started_at', 'finished_at', 'aborted', 'failed')
  local url, started, finished, aborted, failed = unpack(fields)
  if not url then
    return ''
  elseif finished then
    return failed and 'failed' or aborted and 'aborted' or 'completed'
  end
  return started and 'running' or 'queued'
end

-- Whether the job is in one of these states, each between commas, and in this run.
local function is_in(job, states, run)
  return redis.call('HGET', job, 'run') == run and states:find(',' .. state_of(job) .. ',', 1, true)
end

-- Whether the asker may act on the job: its pipeline may; the herd (*) always may; '' may once the lease is over.
local function may_act(asker, job, lease)
  if asker == '*' then
    return true
  elseif asker == '' then
    return redis.call('EXISTS', lease) == 0
  end
  return redis.call('HGET', job, 'pipeline_id') == asker
end
