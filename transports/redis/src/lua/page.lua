-- ARGV[3]: w, f, d or nothing (all); ARGV[4]: phase (1, 2: the streams, 3: the delayed); ARGV[5]: after this id, or
-- nothing; ARGV[6]: at most how many. Looks at a bounded number of entries a call. Answers {phase, id, state, count,
-- due, fields} each, and the phase and id after which it goes on; or N.
local want, phase, after, max = ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local LOOKS = 1000
local out, looks = {}, 0
while phase <= 2 do
  local key = streams[phase]
  local g = key and kind ~= 's' and known(key)
  if key and not g and (kind ~= 's' or redis.call('EXISTS', key) == 0) then return 'N' end
  while key and want ~= 'd' do
    local entries = redis.call('XRANGE', key, after == '' and '-' or '(' .. after, '+', 'COUNT', 100)
    for _, e in ipairs(entries) do
      local state, count = 'w', 0
      if g then
        local p = redis.call('XPENDING', key, group, e[1], e[1], 1)[1]
        if p then
          state, count = p[2] == FREE and 'w' or 'f', p[4]
        elseif not later(e[1], g['last-delivered-id']) then
          state = ''
        end
      end
      looks, after = looks + 1, e[1]
      if state ~= '' and (want == '' or want == state) then out[#out + 1] = { phase, e[1], state, count, 0, e[2] } end
      if #out >= max or looks >= LOOKS then return { out, phase, after } end
    end
    if #entries < 100 then break end
  end
  phase, after = phase + 1, ''
end
if kind == 's' or (want ~= '' and want ~= 'd') then return { out, 0, '' } end
local from = 0
if after ~= '' then
  local due, member = string.match(after, '(%d+)/(%d+)')
  local rank = redis.call('ZRANK', delayed, member)
  from = rank and rank + 1 or redis.call('ZCOUNT', delayed, '-inf', '(' .. due)
end
local some = redis.call('ZRANGE', delayed, from, from + max - #out - 1, 'WITHSCORES')
for i = 1, #some, 2 do
  local packed = redis.call('HGET', bodies, some[i])
  after = some[i + 1] .. '/' .. some[i]
  if packed then out[#out + 1] = { 3, some[i], 'd', 0, some[i + 1], cmsgpack.unpack(packed) } end
end
if #some == 0 or #out < max then return { out, 0, '' } end
return { out, 3, after }
